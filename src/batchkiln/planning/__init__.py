"""What is to come: prices asked beforehand, how the days fill, and what a person should know before paying."""

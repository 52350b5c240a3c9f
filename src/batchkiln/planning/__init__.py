"""Planning before anything is paid: prices, the coming days, and warnings."""

"""The `serve` commands. The program that offers them passes a `HostProgram`: its command classes, output and log."""

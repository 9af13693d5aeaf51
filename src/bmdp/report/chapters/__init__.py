"""What a report says of each experiment, a module each."""

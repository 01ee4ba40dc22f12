"""What can be asked for: options, and the words that they take."""

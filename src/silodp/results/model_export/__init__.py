"""What a silo takes home: its personal model as a file, and a card that says how to use it."""

"""The paper's figures: what is trained for each (definitions), and how it is drawn."""

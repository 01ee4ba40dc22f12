"""Who belongs to a federation over a network: keys, certificates, and what all have agreed on."""

"""How fast silodp is, side by side with the plain way and with Opacus."""

"""Cases that were drawn, and variants that were chosen among several."""

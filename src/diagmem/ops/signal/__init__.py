"""What makes the features of a sound: windows, spectra, energies, filters and what they become."""

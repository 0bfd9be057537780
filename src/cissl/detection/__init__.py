"""Object detection: SSD, consistency with the mirrored image (CSD), and its suppression."""

"""Arrays, descriptors, the driver, launches, the disk cache: what happens when compiled code meets a device. Knows no IR and no language."""

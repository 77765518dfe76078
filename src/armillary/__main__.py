"""``python -m armillary``."""

from armillary.cli import main

if __name__ == "__main__":
    main()

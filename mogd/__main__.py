"""`python -m mogd`."""

from mogd.cli import main

if __name__ == "__main__":
    main()

"""``python -m unweave``: the command line, also where ``torchrun -m unweave`` starts it."""

from unweave.cli import main

if __name__ == "__main__":
    main()

"""stepscope: what each low-precision training recipe costs, gains and risks, kernel by kernel."""

__version__ = "0.1.0"

"""What every member of a family must do, run over all of them."""

"""What the parts of experiments are made of: training, measuring, and the pieces they keep."""

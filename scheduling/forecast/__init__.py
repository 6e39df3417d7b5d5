"""When jobs that wait will start: futures simulated with the production rounds, calibrated on what came true."""

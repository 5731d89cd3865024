"""What a result file must fulfil, by subject; scripts/result_files.py puts it together."""

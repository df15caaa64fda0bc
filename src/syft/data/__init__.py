"""An owner's folder of ordinary files as data that a worker serves.

errors      a file that cannot be served
schema      what is told of data: its columns and their kinds, and never a value
side_file   NAME.toml beside a file: tags, kinds of columns, what to do with missing values
limits      how much memory a folder may take
columns     one column: what it is, from texts or from Arrow, and what becomes of its missing values
tables      .csv, .parquet, .arrow and .feather files
arrays      .npy, .npz and .safetensors files
images      folders of images
offers      data sets for training, made of parts of files
folder      all of a folder: what is served, what is left out and why
worker_datasets   the methods of workers about data sets: offer, list, mock, fit
data_directory    the tagged data sets of a worker, over restarts and crashes
"""

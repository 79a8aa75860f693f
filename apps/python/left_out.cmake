# What the command line has and the Python package does not.
# Rooms: a sixth of the library.
set(FP8LAB_ROOMS_OF_COMMANDS bench collectives model_files report sweep)
# Training loops and optimizers, of which layers need nothing, and other sources. Each has a name of
# its own in the library, and an object of its own, so that check_left_out.cmake can tell when one is needed.
set(FP8LAB_SOURCES_OF_COMMANDS
  core/integer_list experiment/properties io/operand model/block model/cost optim/adamw
  optim/expansion optim/partition scaling/nvfp4_training
  optim/state_tensor reveal/probe_files train/checkpoint train/data train/divergence
  train/gradient_reducer train/guard train/mlp train/monitor train/parallel_checkpoint
  train/parallel_trainer train/systems train/trainer train/transformer)

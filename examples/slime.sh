#!/bin/bash
# Qwen3-4B with slime on one node of 8 GPUs, which also generate.
MODEL_ARGS=(
  --swiglu --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm
  --use-rotary-position-embeddings --disable-bias-linear --normalization RMSNorm --vocab-size 151936
)
PERF_ARGS=(
  --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 1
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
  --use-dynamic-batch-size --max-tokens-per-gpu 9216
)
MISC_ARGS=(--attention-dropout 0 --hidden-dropout 0 --attention-backend flash)
ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \
  "${MODEL_ARGS[@]}" "${PERF_ARGS[@]}" "${MISC_ARGS[@]}"

#!/bin/bash
# Qwen3-8B, every parameter trained, on one node of 8 GPUs.
MODEL=(
  --num-layers 36 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm
  --swiglu --disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights
  --position-embedding-type rope --vocab-size 151936 --make-vocab-size-divisible-by 128
)
RANKS=(
  --tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 1
  --pipeline-model-parallel-size 1 --use-distributed-optimizer
)
TRAIN=(
  --bf16 --micro-batch-size 1 --global-batch-size 128 --seq-length 8192
  --max-position-embeddings 40960 --attention-backend flash --attention-dropout 0 --hidden-dropout 0
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
)
torchrun --nproc-per-node 8 pretrain_gpt.py "${MODEL[@]}" "${RANKS[@]}" "${TRAIN[@]}"

// What an instruction set offers: one table of functions, three of them in the library.
#pragma once
#include <cstdint>

struct GemmJob {
  const float* x;       // packed rows: blocks of [k][rows of the block]
  const void* w;        // panels of 32 columns: [panel][k][32]
  float* out;           // (rows, ldo)
  const float* bias;    // (columns) or null
  const uint8_t* merges;   // additions after each leaf
  const uint8_t* rounded;  // flag a value, or null
  int64_t rows, k, columns, ldo;
  int64_t panel_k, first_k;  // features of a panel, and where this subtree starts
  int64_t leaf, leaves;
  int32_t bf16;
};

struct AttentionJob {
  const void *q, *k, *v;
  float* out;
  const int32_t* first;    // (batch) the index of each sequence's own position 0
  const int32_t* kv_head;  // (heads) which key head serves a head
  int64_t batch, heads, queries, keys, width;
  int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
  int64_t window;  // 0: none
  float scale;
  int32_t bf16;
};

// Weights of 1 to 4 bits in panels of 16 columns; quantised.inc says how their words lie.
struct QuantisedJob {
  const float* x;          // (rows, k)
  const float* sums;       // (rows, groups) of x, or null where there are no zeros
  const uint32_t* words;   // [panel][k / 32][bits][16]
  const uint16_t* scales;  // [panel][group][16], half precision
  const uint16_t* zeros;   // the same, or null
  float* out;              // (rows, columns)
  int64_t rows, k, columns, group;
  int32_t bits;
};

struct Kernels {
  int64_t block_rows;  // rows of the largest block of packed x
  void (*gemm)(const GemmJob&, int64_t first_group, int64_t last_group, int64_t first_block,
               int64_t last_block, float* scratch);
  void (*rms_norm)(const float* x, const float* w, float* out, int64_t rows, int64_t n, float eps);
  void (*silu)(const float* x, float* out, int64_t n);
  void (*exp)(const float* x, float* out, int64_t n);
  void (*log_softmax)(const float* x, float* out, int64_t rows, int64_t n);
  void (*attention)(const AttentionJob&, int64_t first_row, int64_t last_row);
  void (*combine)(const float* const* parts, const uint8_t* merges, const uint8_t* rounded,
                  int64_t count, int64_t first, int64_t last, float* out);
  void (*quantised)(const QuantisedJob&, int64_t first_panel, int64_t last_panel);
};

// How rows are cut into blocks: as many as needed, as even as possible.
static inline int64_t blocks_of(int64_t rows, int64_t most) { return (rows + most - 1) / most; }
static inline int64_t block_start(int64_t rows, int64_t blocks, int64_t i) { return rows * i / blocks; }

const Kernels* scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

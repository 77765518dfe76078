// The C interface of the library: every function takes an instruction set (0 plain, 1 AVX2 with
// FMA, 2 AVX-512) and a number of threads, neither of which changes a bit of any result.
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "pool.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

const Kernels* table(int isa) {
#if defined(__x86_64__)
  if (isa == 2) return avx512_kernels();
  if (isa == 1) return avx2_kernels();
#endif
  (void)isa;
  return scalar_kernels();
}

float widened(const char* p, int dtype) {  // 0 float32, 1 bfloat16
  uint32_t bits;
  if (dtype == 0) {
    std::memcpy(&bits, p, 4);
  } else {
    uint16_t half;
    std::memcpy(&half, p, 2);
    bits = (uint32_t)half << 16;
  }
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

constexpr int64_t SMALL = 1 << 16;  // multiplications below which threads cost more than they save

// Memory of this thread that is kept from call to call.
float* kept(std::vector<float>& memory, int64_t n) {
  if ((int64_t)memory.size() < n) memory.resize(n);
  return memory.data();
}

}  // namespace

API int arm_version() { return 2; }

API int arm_supported(int isa) {
  if (isa == 0) return 1;
#if defined(__x86_64__)
  if (isa == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == 2)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
  return 0;
}

// Panels of 32 columns, features first; columns past the end are zero. A bfloat16 panel keeps
// columns i and 16 + i in one word. `w` has any strides (in elements): (columns, features).
API void arm_pack(int threads, const void* w, int dtype, int64_t columns, int64_t k, int64_t stride,
                  int64_t stride_k, void* out, int bf16) {
  const int64_t size = dtype == 0 ? 4 : 2;
  parallel(threads, (columns + 31) / 32, [&](int64_t panel) {
    const int64_t first = panel * 32, left = columns - first < 32 ? columns - first : 32;
    const char* from = (const char*)w + first * stride * size;
    float* wide = (float*)out + panel * k * 32;
    uint16_t* narrow = (uint16_t*)out + panel * k * 32;
    for (int64_t j0 = 0; j0 < k; j0 += 16)
      for (int64_t c = 0; c < 32; ++c)
        for (int64_t j = j0; j < k && j < j0 + 16; ++j) {
          const char* p = from + (c * stride + j * stride_k) * size;
          if (!bf16) {
            wide[j * 32 + c] = c < left ? widened(p, dtype) : 0.0f;
          } else {
            uint16_t half = 0;
            if (c < left) std::memcpy(&half, p, 2);
            narrow[j * 32 + (c % 16) * 2 + c / 16] = half;
          }
        }
  });
}

// out(rows, ldo) = x(rows, k) w^T over `leaves` leaves that start at feature `first_k` of the panels.
API void arm_tree_gemm(int isa, int threads, const float* x, int64_t ldx, int64_t rows, int64_t k,
                       const void* w, int bf16, int64_t columns, int64_t panel_k, int64_t first_k,
                       int64_t leaf, int64_t leaves, const uint8_t* merges, const uint8_t* rounded,
                       const float* bias, float* out, int64_t ldo) {
  FloatingPoint ieee;
  if (rows <= 0 || columns <= 0) return;
  const Kernels* kernels = table(isa);
  const int64_t blocks = blocks_of(rows, kernels->block_rows);
  if (rows * columns * k < SMALL) threads = 1;

  static thread_local std::vector<float> packed_memory;
  const float* packed = x;
  if (rows > 1) {
    float* to = kept(packed_memory, rows * k);
    packed = to;
    parallel(rows * k < SMALL / 4 ? 1 : threads, blocks, [&](int64_t i) {
      const int64_t first = block_start(rows, blocks, i);
      const int64_t many = block_start(rows, blocks, i + 1) - first;
      float* block = to + first * k;
      for (int64_t j0 = 0; j0 < k; j0 += 16)
        for (int64_t r = 0; r < many; ++r) {
          const float* from = x + (first + r) * ldx;
          for (int64_t j = j0; j < k && j < j0 + 16; ++j) block[j * many + r] = from[j];
        }
    });
  }
  GemmJob job{packed, w,       out,     bias,    merges, rounded, rows,   k,
              columns, ldo,    panel_k, first_k, leaf,   leaves,  bf16};
  const int64_t groups = (columns + 15) / 16;
  // Few rows: pieces of 128 columns; many rows: a panel each, its rows cut too if panels are few.
  const bool few = blocks == 1 && rows <= 4;
  const int64_t step = few ? 8 : 2;
  const int64_t pieces = (groups + step - 1) / step;
  int64_t cuts = 1;
  while (!few && threads > 1 && pieces * cuts < 4 * threads && cuts * 2 <= blocks) cuts *= 2;
  const bool widen = bf16 && rows > 2 * kernels->block_rows;
  parallel(threads, pieces * cuts, [&](int64_t i) {
    static thread_local std::vector<float> memory;
    const int64_t piece = i / cuts, cut = i % cuts;
    const int64_t first = piece * step;
    const int64_t last = first + step < groups ? first + step : groups;
    kernels->gemm(job, first, last, blocks * cut / cuts, blocks * (cut + 1) / cuts,
                  widen ? kept(memory, k * 32) : nullptr);
  });
}

API void arm_rms_norm(int isa, int threads, const float* x, const float* w, float* out,
                      int64_t rows, int64_t n, float eps) {
  FloatingPoint ieee;
  const int64_t each = rows * n < SMALL ? rows : (rows + 4 * threads - 1) / (4 * threads);
  if (rows <= 0) return;
  parallel(threads, (rows + each - 1) / each, [&](int64_t i) {
    const int64_t first = i * each, many = rows - first < each ? rows - first : each;
    table(isa)->rms_norm(x + first * n, w, out + first * n, many, n, eps);
  });
}

API void arm_log_softmax(int isa, int threads, const float* x, float* out, int64_t rows,
                         int64_t n) {
  FloatingPoint ieee;
  parallel(rows * n < SMALL ? 1 : threads, rows,
           [&](int64_t i) { table(isa)->log_softmax(x + i * n, out + i * n, 1, n); });
}

API void arm_elementwise(int isa, int threads, int what, const float* x, float* out, int64_t n) {
  FloatingPoint ieee;
  const int64_t each = 1 << 14;
  parallel(threads, (n + each - 1) / each, [&](int64_t i) {
    const int64_t first = i * each, many = n - first < each ? n - first : each;
    (what == 0 ? table(isa)->silu : table(isa)->exp)(x + first, out + first, many);
  });
}

API void arm_attention(int isa, int threads, const void* q, const void* k, const void* v,
                       float* out, const int32_t* first, const int32_t* kv_head,
                       const int64_t* shape, const int64_t* strides, int64_t window, float scale,
                       int bf16) {
  FloatingPoint ieee;
  AttentionJob job{q,          k,          v,          out,        first,      kv_head,
                   shape[0],   shape[1],   shape[2],   shape[3],   shape[4],   strides[0],
                   strides[1], strides[2], strides[3], strides[4], strides[5], strides[6],
                   strides[7], strides[8], window,     scale,      bf16};
  const int64_t rows = job.batch * job.heads * job.queries;
  if (rows <= 0) return;
  if (rows * job.keys * job.width < SMALL) threads = 1;
  const int64_t each = threads > 1 ? (rows + 8 * threads - 1) / (8 * threads) : rows;
  parallel(threads, (rows + each - 1) / each, [&](int64_t i) {
    const int64_t from = i * each;
    table(isa)->attention(job, from, rows - from < each ? rows : from + each);
  });
}

API void arm_combine(int isa, const float* const* parts, const uint8_t* merges,
                     const uint8_t* rounded, int64_t count, int64_t first, int64_t last,
                     float* out) {
  FloatingPoint ieee;
  table(isa)->combine(parts, merges, rounded, count, first, last, out);
}

// out(rows, columns) = x(rows, k) w^T, w of 1 to 4 bits; k is a multiple of 32.
API void arm_quantised_gemm(int isa, int threads, const float* x, int64_t rows, int64_t k,
                            const uint32_t* words, const uint16_t* scales, const uint16_t* zeros,
                            int bits, int64_t columns, int64_t group, float* out) {
  FloatingPoint ieee;
  if (rows <= 0 || columns <= 0) return;
  const int64_t groups = (k + group - 1) / group;
  static thread_local std::vector<float> memory;
  float* sums = nullptr;
  if (zeros) {  // ascending, one addition after the other, whatever the instruction set
    sums = kept(memory, rows * groups);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t last = (g + 1) * group < k ? (g + 1) * group : k;
        float sum = 0.0f;
        for (int64_t i = g * group; i < last; ++i) sum = sum + x[r * k + i];
        sums[r * groups + g] = sum;
      }
  }
  QuantisedJob job{x, sums, words, scales, zeros, out, rows, k, columns, group, bits};
  const int64_t panels = (columns + 15) / 16, step = 4;
  if (rows * columns * k < SMALL) threads = 1;
  parallel(threads, (panels + step - 1) / step, [&](int64_t i) {
    const int64_t first = i * step;
    table(isa)->quantised(job, first, first + step < panels ? first + step : panels);
  });
}

// Sixteen float lanes, in AVX-512, in AVX2 with FMA, or as a plain array. Every operation is one
// correctly rounded IEEE operation a lane, so that the three give the same bits. Included once by
// each file that fixes ISA (0 plain, 1 AVX2, 2 AVX-512); everything lies in an anonymous namespace,
// so that no function compiled for one instruction set can stand in for another's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#if ISA > 0
#include <immintrin.h>
#else
#include <cmath>
#endif

#define INLINE inline __attribute__((always_inline))

namespace {

constexpr uint32_t CANONICAL_NAN = 0x7fc00000u;

#if ISA == 2

struct Lanes {
  __m512 v;
};
INLINE Lanes zero() { return {_mm512_setzero_ps()}; }
INLINE Lanes all(float x) { return {_mm512_set1_ps(x)}; }
INLINE Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
INLINE Lanes load_some(const float* p, int n) {
  return {_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
}
INLINE void store_some(float* p, Lanes a, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a.v);
}
INLINE Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE Lanes greater(Lanes a, Lanes b) {  // a > b ? a : b
  return {_mm512_max_ps(a.v, b.v)};
}
INLINE Lanes nearest(Lanes a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
INLINE Lanes power_of_two(Lanes n) {  // n whole, -126 ... 127
  __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(i, 23))};
}
INLINE Lanes if_below(Lanes x, float limit, Lanes yes, Lanes no) {
  __mmask16 m = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_LT_OQ);
  return {_mm512_mask_blend_ps(m, no.v, yes.v)};
}
INLINE Lanes nan_of(Lanes x, Lanes otherwise) {  // the canonical NaN where x is NaN
  __mmask16 m = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)CANONICAL_NAN));
  return {_mm512_mask_blend_ps(m, otherwise.v, nan)};
}
INLINE Lanes to_bf16(Lanes x) {  // rounded to bfloat16, ties to even; NaN stays
  __m512i i = _mm512_castps_si512(x.v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(i, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(i, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  Lanes r = {_mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32((int)0xffff0000u)))};
  return nan_of(x, r);
}
INLINE Lanes load_bf16(const uint16_t* p) {  // sixteen consecutive values
  __m256i h = _mm256_loadu_si256((const __m256i*)p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
// A row of a bfloat16 panel: word i holds column i (low half) and column 16 + i (high half).
INLINE Lanes load_low(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
INLINE Lanes load_high(const uint16_t* p) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)))};
}

#elif ISA == 1

struct Lanes {
  __m256 a, b;
};
INLINE Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Lanes all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
INLINE Lanes load_some(const float* p, int n) {
  float t[16] = {0};
  std::memcpy(t, p, sizeof(float) * n);
  return load(t);
}
INLINE void store_some(float* p, Lanes x, int n) {
  float t[16];
  store(t, x);
  std::memcpy(p, t, sizeof(float) * n);
}
#define PAIRWISE(name, op) \
  INLINE Lanes name(Lanes x, Lanes y) { return {op(x.a, y.a), op(x.b, y.b)}; }
PAIRWISE(add, _mm256_add_ps)
PAIRWISE(sub, _mm256_sub_ps)
PAIRWISE(mul, _mm256_mul_ps)
PAIRWISE(div, _mm256_div_ps)
PAIRWISE(greater, _mm256_max_ps)
#undef PAIRWISE
INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
INLINE Lanes nearest(Lanes x) {
  constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, how), _mm256_round_ps(x.b, how)};
}
INLINE __m256 half_power_of_two(__m256 n) {
  __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(i, 23));
}
INLINE Lanes power_of_two(Lanes n) { return {half_power_of_two(n.a), half_power_of_two(n.b)}; }
INLINE Lanes if_below(Lanes x, float limit, Lanes yes, Lanes no) {
  __m256 l = _mm256_set1_ps(limit);
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, l, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, l, _CMP_LT_OQ))};
}
INLINE Lanes nan_of(Lanes x, Lanes otherwise) {
  __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)CANONICAL_NAN));
  return {_mm256_blendv_ps(otherwise.a, nan, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_blendv_ps(otherwise.b, nan, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
INLINE __m256 half_to_bf16(__m256 x) {
  __m256i i = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(i, 16), _mm256_set1_epi32(1));
  __m256i up = _mm256_add_epi32(i, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32((int)0xffff0000u)));
}
INLINE Lanes to_bf16(Lanes x) { return nan_of(x, {half_to_bf16(x.a), half_to_bf16(x.b)}); }
INLINE __m256 half_load_bf16(const uint16_t* p) {
  __m128i h = _mm_loadu_si128((const __m128i*)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
INLINE Lanes load_bf16(const uint16_t* p) { return {half_load_bf16(p), half_load_bf16(p + 8)}; }
INLINE Lanes load_low(const uint16_t* p) {
  const __m256i* q = (const __m256i*)p;
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(q), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(q + 1), 16))};
}
INLINE Lanes load_high(const uint16_t* p) {
  const __m256i* q = (const __m256i*)p;
  __m256i high = _mm256_set1_epi32((int)0xffff0000u);
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(q), high)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(q + 1), high))};
}

#else

struct Lanes {
  float v[16];
};
#define EACH for (int i = 0; i < 16; ++i)
INLINE uint32_t bits_of(float x) {
  uint32_t i;
  std::memcpy(&i, &x, 4);
  return i;
}
INLINE float of_bits(uint32_t i) {
  float x;
  std::memcpy(&x, &i, 4);
  return x;
}
INLINE Lanes all(float x) {
  Lanes r;
  EACH r.v[i] = x;
  return r;
}
INLINE Lanes zero() { return all(0.0f); }
INLINE Lanes load(const float* p) {
  Lanes r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
INLINE void store(float* p, Lanes a) { std::memcpy(p, a.v, sizeof a.v); }
INLINE Lanes load_some(const float* p, int n) {
  Lanes r = zero();
  std::memcpy(r.v, p, sizeof(float) * n);
  return r;
}
INLINE void store_some(float* p, Lanes a, int n) { std::memcpy(p, a.v, sizeof(float) * n); }
#define LANEWISE(name, expression) \
  INLINE Lanes name(Lanes a, Lanes b) { \
    Lanes r; \
    EACH r.v[i] = expression; \
    return r; \
  }
LANEWISE(add, a.v[i] + b.v[i])
LANEWISE(sub, a.v[i] - b.v[i])
LANEWISE(mul, a.v[i] * b.v[i])
LANEWISE(div, a.v[i] / b.v[i])
LANEWISE(greater, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
#undef LANEWISE
INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  Lanes r;
  EACH r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
INLINE Lanes nearest(Lanes a) {
  Lanes r;
  EACH r.v[i] = __builtin_nearbyintf(a.v[i]);
  return r;
}
INLINE Lanes power_of_two(Lanes n) {
  Lanes r;
  EACH r.v[i] = of_bits((uint32_t)((n.v[i] == n.v[i] ? (int)n.v[i] : 0) + 127) << 23);
  return r;
}
INLINE Lanes if_below(Lanes x, float limit, Lanes yes, Lanes no) {
  Lanes r;
  EACH r.v[i] = x.v[i] < limit ? yes.v[i] : no.v[i];
  return r;
}
INLINE Lanes nan_of(Lanes x, Lanes otherwise) {
  Lanes r;
  EACH r.v[i] = x.v[i] == x.v[i] ? otherwise.v[i] : of_bits(CANONICAL_NAN);
  return r;
}
INLINE Lanes to_bf16(Lanes x) {
  Lanes r;
  EACH {
    uint32_t u = bits_of(x.v[i]);
    r.v[i] = of_bits((u + (((u >> 16) & 1) + 0x7fff)) & 0xffff0000u);
  }
  return nan_of(x, r);
}
INLINE Lanes load_bf16(const uint16_t* p) {
  Lanes r;
  EACH r.v[i] = of_bits((uint32_t)p[i] << 16);
  return r;
}
INLINE Lanes load_low(const uint16_t* p) {
  Lanes r;
  EACH r.v[i] = of_bits((uint32_t)p[2 * i] << 16);
  return r;
}
INLINE Lanes load_high(const uint16_t* p) {
  Lanes r;
  EACH r.v[i] = of_bits((uint32_t)p[2 * i + 1] << 16);
  return r;
}
#undef EACH

#endif

// The fixed tree from sixteen lanes to one number: i with i + 8, then + 4, + 2, + 1.
INLINE float tree_sum(Lanes a) {
#if ISA == 2
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#elif ISA == 1
  __m256 h = _mm256_add_ps(a.a, a.b);
#endif
#if ISA > 0
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
#else
  float t[16];
  store(t, a);
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; ++i) t[i] = t[i] + t[i + width];
  return t[0];
#endif
}

INLINE float tree_max(Lanes a) {  // a > b ? a : b in the same tree
  float t[16];
  store(t, a);
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; ++i) t[i] = t[i] > t[i + width] ? t[i] : t[i + width];
  return t[0];
}

// exp with one polynomial for every element: x = n ln2 + r, |r| <= ln2 / 2; the power of two is
// multiplied in by halves, so that results below 2^-126 round once more but rightly ordered.
INLINE Lanes exp(Lanes x) {
  Lanes bounded = greater(x, all(-150.0f));
  bounded = if_below(bounded, 89.0f, bounded, all(89.0f));
  Lanes n = nearest(mul(bounded, all(1.44269504f)));
  Lanes r = fma(n, all(-0.693359375f), bounded);
  r = fma(n, all(2.12194440e-4f), r);
  Lanes p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), all(1.0f));
  Lanes half = nearest(mul(n, all(0.5f)));
  p = mul(mul(p, power_of_two(half)), power_of_two(sub(n, half)));
  p = if_below(x, -104.0f, zero(), p);
  return nan_of(x, p);
}

}  // namespace

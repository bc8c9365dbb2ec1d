// AVX512 with VNNI: one register. Included by simd.h.
//
// VNNI multiplies unsigned with signed bytes, so a factor of 16 bits is two bytes, 256 high + low,
// with a sum for each; and signed codes get 128 added, which is taken off again at the beginning.
#pragma once

namespace rejoinder {

struct Floats { __m512 all; };
struct Ints { __m512i all; };
struct Lanes { __mmask16 all; };

inline Floats floats(float x) { return {_mm512_set1_ps(x)}; }
inline Ints ints(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline Floats load(Lanes lanes, const float* from) { return {_mm512_maskz_loadu_ps(lanes.all, from)}; }
inline void store(float* to, Floats x) { _mm512_storeu_ps(to, x.all); }
inline void store(Lanes lanes, float* to, Floats x) { _mm512_mask_storeu_ps(to, lanes.all, x.all); }
// 16 fp16 numbers.
inline Floats load_halves(const uint16_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline void store_bytes(int8_t* to, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x.all));
}

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.all, b.all)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.all, b.all)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.all, b.all)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.all, b.all)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.all, b.all)}; }
inline Floats fmadd(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
inline Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.all, b.all)}; }
inline Floats min(Floats a, Floats b) { return {_mm512_min_ps(a.all, b.all)}; }
inline Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.all, b.all)}; }
inline Ints min(Ints a, Ints b) { return {_mm512_min_epi32(a.all, b.all)}; }
inline Floats abs(Floats x) { return {_mm512_abs_ps(x.all)}; }
inline float largest(Floats x) { return _mm512_reduce_max_ps(x.all); }
inline float total(Floats x) { return _mm512_reduce_add_ps(x.all); }
inline int32_t total(Ints x) { return _mm512_reduce_add_epi32(x.all); }
// To the nearest whole number, halves to the even one.
inline Floats rounded(Floats x) {
    return {_mm512_roundscale_ps(x.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Ints to_ints(Floats x) { return {_mm512_cvtps_epi32(x.all)}; }
inline Floats to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.all)}; }
// x * 2^whole, for whole numbers from -126 to 0.
inline Floats times_power(Floats x, Floats whole) { return {_mm512_scalef_ps(x.all, whole.all)}; }

inline Lanes first_lanes(int64_t count) {
    return {count >= kLanes ? __mmask16{0xFFFF} : count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << count) - 1)};
}
// Those of the first `end` lanes that are not among the first `start`.
inline Lanes lanes_between(int64_t start, int64_t end) {
    return {static_cast<__mmask16>(first_lanes(end).all & ~first_lanes(start).all)};
}
inline Lanes ordered(Floats x) { return {_mm512_cmp_ps_mask(x.all, x.all, _CMP_ORD_Q)}; }
inline Lanes negative(Floats x) { return {_mm512_cmp_ps_mask(x.all, _mm512_setzero_ps(), _CMP_LT_OQ)}; }
// Those with the sign bit set, -0 and NaN too.
inline Lanes is_signed(Floats x) {
    return {_mm512_cmplt_epi32_mask(_mm512_castps_si512(x.all), _mm512_setzero_si512())};
}
inline Floats select(Lanes lanes, Floats yes, Floats no) { return {_mm512_mask_blend_ps(lanes.all, no.all, yes.all)}; }

// Each lane and the one W lanes on: their sum in the first, their difference in the second.
template <int W>
inline Floats butterflies(Floats x) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i distance = _mm512_set1_epi32(W);
    const __m512 other = _mm512_permutexvar_ps(_mm512_xor_si512(lane, distance), x.all);
    return {_mm512_mask_sub_ps(_mm512_add_ps(other, x.all), _mm512_test_epi32_mask(lane, distance), other, x.all)};
}

// Four factors of 16 bits: their high bytes, then their low ones.
struct Factors {
    int32_t high;
    int32_t low;
};
constexpr int32_t kFactorMax = 127 * 256;  // signed factors: -kFactorMax … kFactorMax
constexpr float kWeightMax = 65535.0f;     // unsigned ones: 0 … kWeightMax

inline void store_factors(Factors* to, __m128i high, __m128i low) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(high, low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2), _mm_unpackhi_epi32(high, low));
}
// 16 signed factors → 4 elements of `to`.
inline void store_factors(Factors* to, Ints factors) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(factors.all, _mm512_set1_epi32(128)), 8);
    const __m512i low = _mm512_sub_epi32(factors.all, _mm512_slli_epi32(high, 8));
    store_factors(to, _mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
}
// 16 unsigned ones, given as floats.
inline void store_weights(Factors* to, Floats weights) {
    const __m512i codes = _mm512_cvtps_epu32(weights.all);
    store_factors(to, _mm512_cvtepi32_epi8(_mm512_srli_epi32(codes, 8)), _mm512_cvtepi32_epi8(codes));
}

// A sum for each lane. Keys and values differ in which side is unsigned.
struct Products {
    __m512i high;
    __m512i low;
};
struct KeyLine { __m512i codes; };
struct ValueLine { __m512i codes; };
constexpr int kMaxRows = 6;        // queries whose sums fit in the registers
constexpr int kLinesAtOnce = 2;    // lines that share the loading of a factor

// `factor_total`: sum of all factors that will be multiplied with keys.
inline Products key_products(int32_t factor_total) {
    return {_mm512_setzero_si512(), _mm512_set1_epi32(-128 * factor_total)};
}
inline Products value_products() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
inline KeyLine load_keys(const int8_t* from) {
    // Signed code + 128 is the code with its highest bit flipped.
    return {_mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(static_cast<char>(0x80)))};
}
inline ValueLine load_values(const int8_t* from) { return {_mm512_loadu_si512(from)}; }
inline void add(Products& sums, KeyLine keys, Factors factors) {
    sums.high = _mm512_dpbusd_epi32(sums.high, keys.codes, _mm512_set1_epi32(factors.high));
    sums.low = _mm512_dpbusd_epi32(sums.low, keys.codes, _mm512_set1_epi32(factors.low));
}
inline void add(Products& sums, ValueLine values, Factors weights) {
    sums.high = _mm512_dpbusd_epi32(sums.high, _mm512_set1_epi32(weights.high), values.codes);
    sums.low = _mm512_dpbusd_epi32(sums.low, _mm512_set1_epi32(weights.low), values.codes);
}
inline Ints sum_of(Products sums) { return {_mm512_add_epi32(_mm512_slli_epi32(sums.high, 8), sums.low)}; }

// Weights, times inputs of 8 bits.
struct Bytes {
    static constexpr int kLineQuads = 1;
    static constexpr float kInputMax = 127.0f;
    static constexpr bool kHasLow = true;
    using Four = int32_t;
    using Line = __m512i;
    using Quad = __m512i;
    struct Sums { __m512i all; };

    static Line load(const uint8_t* from) { return _mm512_loadu_si512(from); }
    template <int kWithin>
    static Quad quad(Line line) { return line; }
};
struct Nibbles : Bytes {
    static constexpr int kLineQuads = 2;

    template <int kWithin>
    static Quad quad(Line line) {
        const __m512i mask = _mm512_set1_epi8(0xF);
        if constexpr (kWithin == 0) return _mm512_and_si512(line, mask);
        return _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
    }
};
inline __m512i spread(int32_t four) { return _mm512_set1_epi32(four); }
// kFirst: the sum begins with these products.
template <bool kFirst>
inline void add(Bytes::Sums& sums, __m512i quad, __m512i four) {
    sums.all = _mm512_dpbusd_epi32(kFirst ? _mm512_setzero_si512() : sums.all, quad, four);
}
// Times 1 or 256.
inline Ints sum_of(const Bytes::Sums& sums, int factor) {
    return {_mm512_slli_epi32(sums.all, factor == 256 ? 8 : 0)};
}
inline void store_inputs(int32_t* to, Ints inputs) { store_bytes(reinterpret_cast<int8_t*>(to), inputs); }

// Inputs of 16 bits as bytes, 256 * high + low.
constexpr float kWideMax = 127.0f * 256.0f;
inline void store_wide(int32_t* high, int32_t* low, Ints inputs) {
    const __m512i highs = _mm512_srai_epi32(_mm512_add_epi32(inputs.all, _mm512_set1_epi32(128)), 8);
    store_inputs(high, {highs});
    store_inputs(low, {_mm512_sub_epi32(inputs.all, _mm512_slli_epi32(highs, 8))});
}

constexpr int kRows = 6;           // fill the registers: 12 integer and 12 float sums
constexpr int kMostRows = 8;       // spill a few, which costs less than to read weights twice

}  // namespace rejoinder

// AVX2: two registers. Included by simd.h.
//
// Bytes cannot be multiplied without the risk of overflow, but for weights of 4 bits; so codes become
// 16 bits wide, the even ones apart from the odd ones: two products each are summed into the right
// lane at once. Factors then have up to 15 bits and a sign at no cost.
#pragma once

namespace rejoinder {

struct Floats { __m256 low, high; };
struct Ints { __m256i low, high; };
struct Lanes { __m256 low, high; };  // the sign bit is set in the lanes that count

inline Floats floats(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Ints ints(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline Floats load(Lanes lanes, const float* from) {
    return {_mm256_maskload_ps(from, _mm256_castps_si256(lanes.low)),
            _mm256_maskload_ps(from + 8, _mm256_castps_si256(lanes.high))};
}
inline void store(float* to, Floats x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
}
inline void store(Lanes lanes, float* to, Floats x) {
    _mm256_maskstore_ps(to, _mm256_castps_si256(lanes.low), x.low);
    _mm256_maskstore_ps(to + 8, _mm256_castps_si256(lanes.high), x.high);
}
// 16 fp16 numbers.
inline Floats load_halves(const uint16_t* from) {
    const __m128i* at = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
inline void store_bytes(int8_t* to, Ints x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Floats fmadd(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)}; }
inline Ints min(Ints a, Ints b) { return {_mm256_min_epi32(a.low, b.low), _mm256_min_epi32(a.high, b.high)}; }
inline Floats abs(Floats x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
inline float largest(Floats x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline float total(Floats x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline int32_t total(Ints x) {
    const __m256i eight = _mm256_add_epi32(x.low, x.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}
// To the nearest whole number, halves to the even one.
inline Floats rounded(Floats x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
inline Ints to_ints(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
// x * 2^whole, for whole numbers from -126 to 0.
inline Floats times_power(Floats x, Floats whole) {
    const auto power = [](__m256 exponent) {
        const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    };
    return {_mm256_mul_ps(x.low, power(whole.low)), _mm256_mul_ps(x.high, power(whole.high))};
}

// Those of the first `end` lanes that are not among the first `start`.
inline Lanes lanes_between(int64_t start, int64_t end) {
    const auto bound = [](int64_t lane) {
        return _mm256_set1_epi32(static_cast<int>(std::clamp<int64_t>(lane, 0, kLanes)));
    };
    const auto within = [&](__m256i lane) {
        const __m256i before = _mm256_cmpgt_epi32(bound(start), lane);
        return _mm256_castsi256_ps(_mm256_andnot_si256(before, _mm256_cmpgt_epi32(bound(end), lane)));
    };
    return {within(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), within(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
inline Lanes first_lanes(int64_t count) { return lanes_between(0, count); }
inline Lanes ordered(Floats x) {
    return {_mm256_cmp_ps(x.low, x.low, _CMP_ORD_Q), _mm256_cmp_ps(x.high, x.high, _CMP_ORD_Q)};
}
inline Lanes negative(Floats x) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_cmp_ps(x.low, zero, _CMP_LT_OQ), _mm256_cmp_ps(x.high, zero, _CMP_LT_OQ)};
}
// Those with the sign bit set, -0 and NaN too.
inline Lanes is_signed(Floats x) { return {x.low, x.high}; }
inline Floats select(Lanes lanes, Floats yes, Floats no) {
    return {_mm256_blendv_ps(no.low, yes.low, lanes.low), _mm256_blendv_ps(no.high, yes.high, lanes.high)};
}

// Each lane and the one W lanes on: their sum in the first, their difference in the second.
template <int W>
inline Floats butterflies(Floats x) {
    if constexpr (W == 8) return {_mm256_add_ps(x.low, x.high), _mm256_sub_ps(x.low, x.high)};
    const auto both = [](__m256 y) {
        if constexpr (W == 4) {
            const __m256 other = _mm256_permute2f128_ps(y, y, 1);
            return _mm256_blend_ps(_mm256_add_ps(other, y), _mm256_sub_ps(other, y), 0xF0);
        }
        if constexpr (W == 2) {
            const __m256 other = _mm256_permute_ps(y, 0x4E);
            return _mm256_blend_ps(_mm256_add_ps(other, y), _mm256_sub_ps(other, y), 0xCC);
        }
        const __m256 other = _mm256_permute_ps(y, 0xB1);
        return _mm256_blend_ps(_mm256_add_ps(other, y), _mm256_sub_ps(other, y), 0xAA);
    };
    return {both(x.low), both(x.high)};
}

// Four factors of 16 bits: the first and third, then the second and fourth.
struct Factors {
    int32_t even;
    int32_t odd;
};
constexpr int32_t kFactorMax = 32767;    // signed factors: -kFactorMax … kFactorMax
constexpr float kWeightMax = 32767.0f;   // unsigned ones: 0 … kWeightMax

// 16 signed factors → 4 elements of `to`.
inline void store_factors(Factors* to, Ints factors) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(factors.low, factors.high), 0xD8);
    const __m256i apart = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xD8), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), apart);
}
// 16 unsigned ones, given as floats.
inline void store_weights(Factors* to, Floats weights) { store_factors(to, to_ints(weights)); }

// The same factors in all lanes.
struct Spread { __m256i even, odd; };
inline Spread spread(const Factors& four) { return {_mm256_set1_epi32(four.even), _mm256_set1_epi32(four.odd)}; }
inline __m256i spread(int32_t four) { return _mm256_set1_epi32(four); }

// Codes of 8 lanes as words; of 16.
struct HalfLine { __m256i even, odd; };
struct WideLine { HalfLine low, high; };
using KeyLine = WideLine;
using ValueLine = WideLine;

inline __m256i load_half(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline HalfLine load_signed(const int8_t* from) {
    const __m256i codes = load_half(from);
    return {_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8), _mm256_srai_epi16(codes, 8)};
}
inline KeyLine load_keys(const int8_t* from) { return {load_signed(from), load_signed(from + 32)}; }
inline ValueLine load_values(const int8_t* from) { return load_keys(from); }

// Left to themselves, compilers add products in pairs first, and run out of registers.
inline void add_in_order(__m256i& sum, __m256i product) {
    sum = _mm256_add_epi32(sum, product);
    asm("" : "+x"(sum));
}

// A sum for each lane. kFirst: it begins with these products.
struct Products { __m256i low, high; };
constexpr int kMaxRows = 4;        // queries whose sums fit in the registers
constexpr int kLinesAtOnce = 1;

template <bool kFirst>
inline void add(__m256i& sum, const HalfLine& codes, const Spread& four) {
    const __m256i even = _mm256_madd_epi16(codes.even, four.even);
    if constexpr (kFirst) sum = even;
    else add_in_order(sum, even);
    add_in_order(sum, _mm256_madd_epi16(codes.odd, four.odd));
}
template <bool kFirst>
inline void add(Products& sums, const WideLine& line, const Spread& four) {
    add<kFirst>(sums.low, line.low, four);
    add<kFirst>(sums.high, line.high, four);
}
inline Products key_products(int32_t) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Products value_products() { return key_products(0); }
inline void add(Products& sums, const WideLine& line, const Factors& factors) { add<false>(sums, line, spread(factors)); }
inline Ints sum_of(const Products& sums) { return {sums.low, sums.high}; }

// Weights of 8 bits, times inputs of 16: both are words, so nothing is won with fewer.
struct Bytes {
    static constexpr int kLineQuads = 1;
    static constexpr float kInputMax = 32767.0f;
    static constexpr bool kHasLow = false;
    using Four = Factors;
    using Line = WideLine;
    using Quad = WideLine;
    using Sums = Products;

    static HalfLine load_half_line(const uint8_t* from) {
        const __m256i codes = load_half(from);
        return {_mm256_and_si256(codes, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(codes, 8)};
    }
    static Line load(const uint8_t* from) { return {load_half_line(from), load_half_line(from + 32)}; }
    template <int kWithin>
    static Quad quad(const Line& line) { return line; }
};
inline void store_inputs(Factors* to, Ints inputs) { store_factors(to, inputs); }
inline Ints sum_of(const Products& sums, int) { return sum_of(sums); }

// Weights of 4 bits, times inputs of 8. A group's products, 32 at most 15 * 128 large, are summed
// two and two in words: 16 * 15 * 128 = 30,720 is no overflow.
struct WordSums { __m256i low, high; };
struct ByteQuad { __m256i low, high; };
struct Nibbles {
    static constexpr int kLineQuads = 2;
    static constexpr float kInputMax = 127.0f;
    static constexpr bool kHasLow = true;
    using Four = int32_t;
    using Line = ByteQuad;
    using Quad = ByteQuad;
    using Sums = WordSums;

    static Line load(const uint8_t* from) { return {load_half(from), load_half(from + 32)}; }
    template <int kWithin>
    static Quad quad(const Line& line) {
        const __m256i mask = _mm256_set1_epi8(0xF);
        if constexpr (kWithin == 0) return {_mm256_and_si256(line.low, mask), _mm256_and_si256(line.high, mask)};
        return {_mm256_and_si256(_mm256_srli_epi16(line.low, 4), mask),
                _mm256_and_si256(_mm256_srli_epi16(line.high, 4), mask)};
    }
};
template <bool kFirst>
inline void add_words(__m256i& sum, __m256i codes, __m256i four) {
    const __m256i products = _mm256_maddubs_epi16(codes, four);
    sum = kFirst ? products : _mm256_add_epi16(sum, products);
    asm("" : "+x"(sum));  // as in add_in_order
}
template <bool kFirst>
inline void add(WordSums& sums, const ByteQuad& quad, __m256i four) {
    add_words<kFirst>(sums.low, quad.low, four);
    add_words<kFirst>(sums.high, quad.high, four);
}
// Times 1 or 256.
inline Ints sum_of(const WordSums& sums, int factor) {
    const __m256i factors = _mm256_set1_epi16(static_cast<int16_t>(factor));
    return {_mm256_madd_epi16(sums.low, factors), _mm256_madd_epi16(sums.high, factors)};
}
inline void store_inputs(int32_t* to, Ints inputs) { store_bytes(reinterpret_cast<int8_t*>(to), inputs); }

// Inputs of 16 bits as bytes, 256 * high + low.
constexpr float kWideMax = 127.0f * 256.0f;
inline void store_wide(int32_t* high, int32_t* low, Ints inputs) {
    const auto high_of = [](__m256i x) { return _mm256_srai_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(128)), 8); };
    const Ints highs{high_of(inputs.low), high_of(inputs.high)};
    store_inputs(high, highs);
    store_inputs(low, {_mm256_sub_epi32(inputs.low, _mm256_slli_epi32(highs.low, 8)),
                       _mm256_sub_epi32(inputs.high, _mm256_slli_epi32(highs.high, 8))});
}

constexpr int kRows = 4;      // of inputs, whose sums fit in the registers
constexpr int kMostRows = 4;

}  // namespace rejoinder

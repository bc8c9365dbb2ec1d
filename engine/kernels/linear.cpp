#include "linear.h"

#include "simd.h"

namespace rejoinder {
namespace {

// Rows that are computed together. 6 fill the registers: 12 integer and 12 float sums; 8 spill a
// few, which costs less than to read the weights twice.
constexpr int64_t kRows = 6;
constexpr int64_t kMaxRows = 8;

inline __m512 halves(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

// `kAhead`: fetch the next tile's weights meanwhile. Where a tile is read once, the hardware sees
// one long stream and does better alone.
template <int R, bool kAhead>
inline void multiply_rows(const LinearWeights& weights, const WeightBlock* blocks, const InputGroup* inputs,
                          __m512 (&sums)[R][2]) {
    const int64_t num_groups = weights.num_groups();
    const int64_t stride = weights.num_input_groups();
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_ps();
    for (int64_t group = 0; group < stride; ++group) {
        const WeightBlock& block = blocks[group < num_groups ? group : weights.loud[group - num_groups]];
        const uint8_t* codes = block.codes;
        __m512i dots[R][2];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
            dots[r][0] = dots[r][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int quad = 0; quad < kGroup / 4; ++quad, codes += 2 * kLineBytes) {
            const __m512i low = _mm512_load_si512(codes);
            const __m512i high = _mm512_load_si512(codes + kLineBytes);
            if constexpr (kAhead) {
                const char* next = reinterpret_cast<const char*>(codes + num_groups * sizeof(WeightBlock));
                _mm_prefetch(next, _MM_HINT_T0);
                _mm_prefetch(next + kLineBytes, _MM_HINT_T0);
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                int32_t four;
                __builtin_memcpy(&four, inputs[r * stride + group].codes + quad * 4, 4);
                const __m512i x = _mm512_set1_epi32(four);
                dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], low, x);
                dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], high, x);
            }
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m512 scale = halves(block.scales + half * kLanes);
            const __m512 minimum = halves(block.minima + half * kLanes);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const InputGroup& input = inputs[r * stride + group];
                const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(input.scale));
                const __m512 sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(input.total), sums[r][half]);
                sums[r][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][half]), factor, sum);
            }
        }
    }
}

template <int R, bool kAhead>
void multiply_tile(const LinearWeights& weights, int64_t tile, const InputGroup* inputs, float* y, bool add) {
    __m512 sums[R][2];
    multiply_rows<R, kAhead>(weights, weights.blocks + tile * weights.num_groups(), inputs, sums);
    for (int half = 0; half < 2; ++half) {
        const int64_t at = tile * kTileOutputs + half * kLanes;
        const __mmask16 lanes = first_lanes(weights.num_outputs - at);
        const __m512 bias = weights.bias ? _mm512_maskz_loadu_ps(lanes, weights.bias + at) : _mm512_setzero_ps();
        for (int r = 0; r < R; ++r) {
            float* to = y + r * weights.num_outputs + at;
            __m512 sum = _mm512_add_ps(sums[r][half], bias);
            if (add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, to));
            _mm512_mask_storeu_ps(to, lanes, sum);
        }
    }
}

template <bool kAhead>
void multiply_block(const LinearWeights& weights, int64_t tile, const InputGroup* inputs, int64_t rows,
                    float* y, bool add) {
    switch (rows) {
        case 1: return multiply_tile<1, kAhead>(weights, tile, inputs, y, add);
        case 2: return multiply_tile<2, kAhead>(weights, tile, inputs, y, add);
        case 3: return multiply_tile<3, kAhead>(weights, tile, inputs, y, add);
        case 4: return multiply_tile<4, kAhead>(weights, tile, inputs, y, add);
        case 5: return multiply_tile<5, kAhead>(weights, tile, inputs, y, add);
        case 6: return multiply_tile<6, kAhead>(weights, tile, inputs, y, add);
        case 7: return multiply_tile<7, kAhead>(weights, tile, inputs, y, add);
        case 8: return multiply_tile<8, kAhead>(weights, tile, inputs, y, add);
    }
}

void multiply_all_rows(const LinearWeights& weights, int64_t tile, const InputGroup* inputs,
                       int64_t num_rows, float* y, bool add) {
    if (num_rows <= kMaxRows) return multiply_block<false>(weights, tile, inputs, num_rows, y, add);
    for (int64_t row = 0; row < num_rows;) {
        const int64_t left = num_rows - row;
        const int64_t num_blocks = (left + kRows - 1) / kRows;
        const int64_t rows = (left + num_blocks - 1) / num_blocks;
        const InputGroup* from = inputs + row * weights.num_input_groups();
        float* to = y + row * weights.num_outputs;
        if (num_blocks == 1)
            multiply_block<true>(weights, tile, from, rows, to, add);
        else
            multiply_block<false>(weights, tile, from, rows, to, add);
        row += rows;
    }
}

void round_group(__m512 low, __m512 high, InputGroup& group) {
    const float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const __m512 factor = _mm512_set1_ps(amax > 0 ? 127.0f / amax : 0.0f);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(low, factor));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(high, factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(group.codes), _mm512_cvtsepi32_epi8(first));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(group.codes + kLanes), _mm512_cvtsepi32_epi8(second));
    group.scale = amax / 127.0f;
    group.total = group.scale * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(first, second)));
}

__m512 left_over(__m512 x, const InputGroup& rounded, int half) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rounded.codes + half * kLanes));
    return _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), _mm512_set1_ps(rounded.scale), x);
}

}  // namespace

void round_inputs(const LinearWeights& weights, const float* x, InputGroup* groups) {
    const int64_t num_groups = weights.num_groups();
    const auto load = [&](int64_t group, int64_t half) {
        const int64_t at = group * kGroup + half * kLanes;
        return _mm512_maskz_loadu_ps(first_lanes(weights.num_inputs - at), x + at);
    };
    for (int64_t group = 0; group < num_groups; ++group)
        round_group(load(group, 0), load(group, 1), groups[group]);
    for (int64_t index = 0; index < weights.num_loud; ++index) {
        const int64_t group = weights.loud[index];
        const InputGroup& rounded = groups[group];
        round_group(left_over(load(group, 0), rounded, 0), left_over(load(group, 1), rounded, 1),
                    groups[num_groups + index]);
    }
}

void multiply(const LinearWeights& weights, const InputGroup* inputs, int64_t num_rows, float* y,
              bool add, int num_threads) {
    const int64_t num_tiles = (weights.num_outputs + kTileOutputs - 1) / kTileOutputs;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
    for (int64_t tile = 0; tile < num_tiles; ++tile)
        multiply_all_rows(weights, tile, inputs, num_rows, y, add);
}

}  // namespace rejoinder

// x [num_rows, num_inputs] → y [num_rows, num_outputs]
extern "C" void rejoinder_linear(const rejoinder::LinearWeights* weights, const float* x,
                                 int64_t num_rows, float* y, int64_t num_threads) {
    using namespace rejoinder;
    const int64_t num_groups = weights->num_input_groups();
    auto inputs = buffer<InputGroup>(num_rows * num_groups);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1 && num_rows > 8)
    for (int64_t row = 0; row < num_rows; ++row)
        round_inputs(*weights, x + row * weights->num_inputs, inputs.get() + row * num_groups);
    multiply(*weights, inputs.get(), num_rows, y, false, static_cast<int>(num_threads));
}

#include "layer.h"

#include "simd.h"

namespace rejoinder {
namespace {

constexpr float kMaxScale = 65504.0f;  // the largest finite fp16
constexpr int kMaxCode = 127;

// x [num_inputs] → its norm, rounded. `normed` is scratch of the same size.
void round_normed(const float* x, const NormedLinear& layer, float eps, float* normed, InputGroup* groups) {
    const int64_t size = layer.linear->num_inputs;
    __m512 squares = _mm512_setzero_ps();
    for (int64_t at = 0; at < size; at += kLanes) {
        const __m512 part = _mm512_maskz_loadu_ps(first_lanes(size - at), x + at);
        squares = _mm512_fmadd_ps(part, part, squares);
    }
    const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(size);
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(mean + eps));
    for (int64_t at = 0; at < size; at += kLanes) {
        const __mmask16 lanes = first_lanes(size - at);
        const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + at), factor);
        _mm512_mask_storeu_ps(normed + at, lanes, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, layer.norm + at)));
    }
    round_inputs(*layer.linear, normed, groups);
}

// silu(gate) * up, rounded; `gate` [num_inputs] is overwritten, `up` follows it.
void round_gated(float* gate, const LinearWeights& layer, InputGroup* groups) {
    const int64_t size = layer.num_inputs;
    const float* up = gate + size;
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int64_t at = 0; at < size; at += kLanes) {
        const __mmask16 lanes = first_lanes(size - at);
        const __m512 x = _mm512_maskz_loadu_ps(lanes, gate + at);
        // sigmoid(x) by 2^-|x log2 e|, which cannot overflow.
        const __m512 power = exp2_ps(_mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-1.4426950408889634f)));
        const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
        const __m512 above = _mm512_mask_blend_ps(negative, one, power);
        const __m512 sigmoid = _mm512_div_ps(above, _mm512_add_ps(one, power));
        const __m512 product = _mm512_mul_ps(_mm512_mul_ps(x, sigmoid), _mm512_maskz_loadu_ps(lanes, up + at));
        _mm512_mask_storeu_ps(gate + at, lanes, product);
    }
    round_inputs(layer, gate, groups);
}

// Rotary embedding (half-split), then the orthonormal Walsh-Hadamard transform by blocks.
void turn(const float* head, const float* cos, const float* sin, int64_t dim, float* turned) {
    const int64_t half = dim / 2;
    for (int64_t d = 0; d < half; ++d) {
        turned[d] = head[d] * cos[d] + head[d + half] * sin[d];
        turned[d + half] = head[d + half] * cos[d + half] + head[d] * sin[d + half];
    }
    const int64_t block = dim & -dim;
    for (int64_t width = 1; width < block; width *= 2) {
        if (width < kLanes) {
            // Neighbours within a register: each lane gets the sum with, or difference from, its
            // partner `width` lanes away.
            const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            const __m512i distance = _mm512_set1_epi32(static_cast<int>(width));
            const __m512i partner = _mm512_xor_si512(lane, distance);
            const __mmask16 second = _mm512_test_epi32_mask(lane, distance);
            for (int64_t d = 0; d < dim; d += kLanes) {
                const __m512 x = _mm512_loadu_ps(turned + d);
                const __m512 other = _mm512_permutexvar_ps(partner, x);
                const __m512 sum = _mm512_add_ps(other, x);
                _mm512_storeu_ps(turned + d, _mm512_mask_sub_ps(sum, second, other, x));
            }
            continue;
        }
        for (int64_t start = 0; start < dim; start += 2 * width) {
            for (int64_t d = start; d < start + width; d += kLanes) {
                const __m512 x = _mm512_loadu_ps(turned + d);
                const __m512 y = _mm512_loadu_ps(turned + d + width);
                _mm512_storeu_ps(turned + d, _mm512_add_ps(x, y));
                _mm512_storeu_ps(turned + d + width, _mm512_sub_ps(x, y));
            }
        }
    }
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(static_cast<float>(block)));
    for (int64_t d = 0; d < dim; d += kLanes)
        _mm512_storeu_ps(turned + d, _mm512_mul_ps(_mm512_loadu_ps(turned + d), factor));
}

// As `engine.quant.quantise`: → codes [dim] and the fp16 scale.
uint16_t round_vector(const float* vector, int64_t dim, int8_t* codes) {
    const __m512 limit = _mm512_set1_ps(kMaxCode * kMaxScale);
    const auto finite = [&](int64_t d) {
        const __m512 x = _mm512_loadu_ps(vector + d);
        const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
        return _mm512_max_ps(_mm512_min_ps(number, limit), _mm512_sub_ps(_mm512_setzero_ps(), limit));
    };
    __m512 most = _mm512_setzero_ps();
    for (int64_t d = 0; d < dim; d += kLanes) most = _mm512_max_ps(most, _mm512_abs_ps(finite(d)));
    const float amax = _mm512_reduce_max_ps(most);
    const uint16_t scale = static_cast<uint16_t>(_cvtss_sh(amax / kMaxCode, _MM_FROUND_TO_NEAREST_INT));
    const float rounded = _cvtsh_ss(scale);
    const __m512 divisor = _mm512_set1_ps(rounded > 0 ? rounded : INFINITY);
    for (int64_t d = 0; d < dim; d += kLanes) {
        __m512i code = _mm512_cvtps_epi32(_mm512_div_ps(finite(d), divisor));
        code = _mm512_min_epi32(_mm512_max_epi32(code, _mm512_set1_epi32(-kMaxCode)), _mm512_set1_epi32(kMaxCode));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + d), _mm512_cvtepi32_epi8(code));
    }
    return scale;
}


void write_vectors(const Pages& pages, int64_t slot, int64_t head, const float* key, const float* value, int8_t* codes) {
    const int64_t dim = pages.head_dim;
    const int64_t offset = slot / pages.page_tokens * pages.page_bytes;
    const int64_t place = slot % pages.page_tokens;
    const int64_t within = offset + head * pages.page_tokens * dim;
    const int64_t scale_at = offset / 2 + head * pages.page_tokens + place;
    pages.key_scales[scale_at] = round_vector(key, dim, codes);
    int8_t* keys = pages.keys + within + place / kLanes * kLanes * dim + place % kLanes * 4;
    for (int64_t quad = 0; quad < dim / 4; ++quad) __builtin_memcpy(keys + quad * kLineBytes, codes + quad * 4, 4);
    pages.value_scales[scale_at] = round_vector(value, dim, codes);
    int8_t* values = pages.values + within + place / 4 * dim * 4 + place % 4;
    for (int64_t d = 0; d < dim; ++d) values[d * 4] = codes[d];
}

// One token's heads [queries | keys | values]: queries are turned in place, keys and values go
// into the pages. `centre` [num_kv_heads, head_dim], turned, or null.
void place_token(float* heads, int64_t num_heads, const float* cos, const float* sin, const Pages& pages,
                 const float* centre, int64_t slot, float* turned, int8_t* codes) {
    const int64_t dim = pages.head_dim;
    for (int64_t head = 0; head < num_heads; ++head) {
        turn(heads + head * dim, cos, sin, dim, turned);
        __builtin_memcpy(heads + head * dim, turned, dim * sizeof(float));
    }
    const float* keys = heads + num_heads * dim;
    const float* values = keys + pages.num_kv_heads * dim;
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
        turn(keys + head * dim, cos, sin, dim, turned);
        if (centre)
            for (int64_t d = 0; d < dim; ++d) turned[d] -= centre[head * dim + d];
        write_vectors(pages, slot, head, turned, values + head * dim, codes);
    }
}

}  // namespace
}  // namespace rejoinder

// hidden [num_tokens, hidden_size] is replaced by the layer's output.
extern "C" void rejoinder_layer(const rejoinder::LayerWeights* weights, const rejoinder::Pages* pages,
                                const float* centre, const rejoinder::Batch* batch, float* hidden, int64_t threads) {
    using namespace rejoinder;
    const int num_threads = static_cast<int>(threads);
    const int64_t num_tokens = batch->num_tokens;
    const int64_t hidden_size = weights->qkv.linear->num_inputs;
    const int64_t dim = pages->head_dim;
    const int64_t qkv_size = weights->qkv.linear->num_outputs;
    const int64_t attended_size = weights->num_heads * dim;
    const int64_t inner_size = weights->down->num_inputs;
    const int64_t num_groups =
        std::max({weights->qkv.linear->num_input_groups(), weights->output->num_input_groups(),
                  weights->gate_up.linear->num_input_groups(), weights->down->num_input_groups()});
    auto inputs = buffer<InputGroup>(num_tokens * num_groups);
    auto wide = buffer<float>(num_tokens * std::max(qkv_size, 2 * inner_size));
    auto attended = buffer<float>(num_tokens * attended_size);
    const bool parallel = num_threads > 1 && num_tokens > 4;

    const auto normed = [&](const NormedLinear& layer) {
        const int64_t groups = layer.linear->num_input_groups();
#pragma omp parallel num_threads(num_threads) if (parallel)
        {
            auto scratch = buffer<float>(hidden_size);
#pragma omp for schedule(static)
            for (int64_t token = 0; token < num_tokens; ++token)
                round_normed(hidden + token * hidden_size, layer, weights->norm_eps, scratch.get(),
                             inputs.get() + token * groups);
        }
        multiply(*layer.linear, inputs.get(), num_tokens, wide.get(), false, num_threads);
    };
    const auto add_to_hidden = [&](const LinearWeights& layer, auto round) {
        const int64_t groups = layer.num_input_groups();
#pragma omp parallel for schedule(static) num_threads(num_threads) if (parallel)
        for (int64_t token = 0; token < num_tokens; ++token) round(token, inputs.get() + token * groups);
        multiply(layer, inputs.get(), num_tokens, hidden, true, num_threads);
    };

    normed(weights->qkv);
#pragma omp parallel num_threads(num_threads) if (parallel)
    {
        auto turned = buffer<float>(dim);
        auto codes = buffer<int8_t>(dim);
#pragma omp for schedule(static)
        for (int64_t token = 0; token < num_tokens; ++token)
            place_token(wide.get() + token * qkv_size, weights->num_heads, batch->cos + token * dim,
                        batch->sin + token * dim, *pages, centre, batch->slots[token], turned.get(), codes.get());
    }
    attend(wide.get(), qkv_size, weights->num_heads, *pages, batch->spans, attended.get(), num_threads);
    add_to_hidden(*weights->output, [&](int64_t token, InputGroup* groups) {
        round_inputs(*weights->output, attended.get() + token * attended_size, groups);
    });
    normed(weights->gate_up);
    add_to_hidden(*weights->down, [&](int64_t token, InputGroup* groups) {
        round_gated(wide.get() + token * 2 * inner_size, *weights->down, groups);
    });
}

// Keys [num_tokens, num_kv_heads, head_dim], after RoPE and turned, and values into their slots.
extern "C" void rejoinder_write(const rejoinder::Pages* pages, const float* keys, const float* values,
                                const int64_t* slots, int64_t num_tokens) {
    using namespace rejoinder;
    auto codes = buffer<int8_t>(pages->head_dim);
    for (int64_t token = 0; token < num_tokens; ++token)
        for (int64_t head = 0; head < pages->num_kv_heads; ++head) {
            const int64_t at = (token * pages->num_kv_heads + head) * pages->head_dim;
            write_vectors(*pages, slots[token], head, keys + at, values + at, codes.get());
        }
}

#include "layer.h"

#include "hadamard.h"

namespace rejoinder {
namespace {

constexpr float kMaxScale = 65504.0f;  // the largest finite fp16
constexpr int kMaxCode = 127;
constexpr uint16_t kSignOfHalf = 0x8000;

// x [num_inputs] → its norm, rounded. `normed` is scratch of the same size.
void round_normed(const float* x, const NormedLinear& layer, float eps, float* normed, std::byte* rounded) {
    const int64_t size = layer.linear->num_inputs;
    Floats squares = floats(0.0f);
    by_lanes(size, [&](int64_t at, auto lanes) {
        const Floats part = load(lanes, x + at);
        squares = fmadd(part, part, squares);
    });
    const float mean = total(squares) / static_cast<float>(size);
    const Floats factor = floats(1.0f / std::sqrt(mean + eps));
    by_lanes(size, [&](int64_t at, auto lanes) {
        store(lanes, normed + at, load(lanes, x + at) * factor * load(lanes, layer.norm + at));
    });
    round_inputs(*layer.linear, normed, rounded);
}

// silu(gate) * up, rounded; `gate` [num_inputs] is overwritten, `up` follows it.
void round_gated(float* gate, const LinearWeights& layer, std::byte* rounded) {
    const int64_t size = layer.num_inputs;
    const float* up = gate + size;
    const Floats one = floats(1.0f);
    by_lanes(size, [&](int64_t at, auto lanes) {
        const Floats x = load(lanes, gate + at);
        // sigmoid(x) by 2^-|x log2 e|, which cannot overflow.
        const Floats power = exp2(abs(x) * floats(-1.4426950408889634f));
        const Floats sigmoid = select(negative(x), power, one) / (one + power);
        store(lanes, gate + at, x * sigmoid * load(lanes, up + at));
    });
    round_inputs(layer, gate, rounded);
}

// Rotary embedding (half-split), then the transform.
void turn(const float* head, const float* cos, const float* sin, int64_t dim, float* turned) {
    const int64_t half = dim / 2;
    for (int64_t d = 0; d < half; ++d) {
        turned[d] = head[d] * cos[d] + head[d + half] * sin[d];
        turned[d + half] = head[d + half] * cos[d + half] + head[d] * sin[d + half];
    }
    transform(turned, dim);
}

// As `engine.kv.quant.quantise`: → codes [dim] and the fp16 scale.
uint16_t round_vector(const float* vector, int64_t dim, int8_t* codes) {
    const Floats limit = floats(kMaxCode * kMaxScale);
    const auto finite = [&](int64_t d) {
        const Floats x = load(vector + d);
        return max(min(select(ordered(x), x, floats(0.0f)), limit), floats(0.0f) - limit);
    };
    Floats most = floats(0.0f);
    for (int64_t d = 0; d < dim; d += kLanes) most = max(most, abs(finite(d)));
    const uint16_t scale = static_cast<uint16_t>(_cvtss_sh(largest(most) / kMaxCode, _MM_FROUND_TO_NEAREST_INT));
    const float rounded = _cvtsh_ss(scale);
    const Floats divisor = floats(rounded > 0 ? rounded : INFINITY);
    for (int64_t d = 0; d < dim; d += kLanes) {
        const Ints code = to_ints(finite(d) / divisor);
        store_bytes(codes + d, min(max(code, ints(-kMaxCode)), ints(kMaxCode)));
    }
    return scale;
}

// Scratch for one vector at a time.
struct Scratch {
    Buffer<float> vector;
    Buffer<int8_t> codes;

    explicit Scratch(int64_t dim) : vector(buffer<float>(dim)), codes(buffer<int8_t>(dim)) {}
};

// → `codes` [head_dim], and a scale for each group: `scales[group * page_tokens]`.
void round_groups(const Pages& pages, const float* vector, int8_t* codes, uint16_t* scales) {
    for (int64_t group = 0; group < pages.num_groups; ++group) {
        const int64_t d = group * pages.group_dim();
        scales[group * pages.page_tokens] = round_vector(vector + d, pages.group_dim(), codes + d);
    }
}

// `key` is turned and without its centre; `scratch.vector` may be where it is. `marked`: as the first
// of its sequence.
void write_vectors(const Pages& pages, int64_t slot, int64_t head, const float* key, const float* value, bool marked,
                   Scratch& scratch) {
    const int64_t dim = pages.head_dim;
    const int64_t offset = slot / pages.page_tokens * pages.page_bytes;
    const int64_t place = slot % pages.page_tokens;
    const int64_t within = offset + head * pages.page_tokens * dim;
    const int64_t scale_at = offset / 2 + head * pages.num_groups * pages.page_tokens + place;
    const int8_t* codes = scratch.codes.get();
    uint16_t* key_scales = pages.key_scales + scale_at;
    round_groups(pages, key, scratch.codes.get(), key_scales);
    if (marked)
        for (int64_t group = 0; group < pages.num_groups; ++group) key_scales[group * pages.page_tokens] |= kSignOfHalf;
    int8_t* keys = pages.keys + within + place / kLanes * kLanes * dim + place % kLanes * 4;
    for (int64_t quad = 0; quad < dim / 4; ++quad) __builtin_memcpy(keys + quad * kLineBytes, codes + quad * 4, 4);
    std::copy_n(value, dim, scratch.vector.get());
    transform(scratch.vector.get(), dim);
    round_groups(pages, scratch.vector.get(), scratch.codes.get(), pages.value_scales + scale_at);
    int8_t* values = pages.values + within + place / 4 * dim * 4 + place % 4;
    for (int64_t d = 0; d < dim; ++d) values[d * 4] = codes[d];
}

// One token's heads [queries | keys | values]: queries are turned in place, keys and values go
// into the pages. `centre` [num_kv_heads, head_dim], turned, or null. `begins`: its sequence.
void place_token(float* heads, int64_t num_heads, const float* cos, const float* sin, const Pages& pages,
                 const float* centre, int64_t slot, bool begins, Scratch& scratch) {
    const int64_t dim = pages.head_dim;
    float* turned = scratch.vector.get();
    for (int64_t head = 0; head < num_heads; ++head) {
        turn(heads + head * dim, cos, sin, dim, turned);
        __builtin_memcpy(heads + head * dim, turned, dim * sizeof(float));
    }
    const float* keys = heads + num_heads * dim;
    const float* values = keys + pages.num_kv_heads * dim;
    const bool marked = begins && pages.first_offset != nullptr;
    for (int64_t head = 0; head < pages.num_kv_heads; ++head) {
        turn(keys + head * dim, cos, sin, dim, turned);
        if (centre)
            for (int64_t d = 0; d < dim; ++d) turned[d] -= centre[head * dim + d];
        if (marked)
            for (int64_t d = 0; d < dim; ++d) turned[d] -= pages.first_offset[head * dim + d];
        write_vectors(pages, slot, head, turned, values + head * dim, marked, scratch);
    }
}

// [num_tokens]: which are the first of their sequences.
Buffer<bool> beginnings(const Batch& batch) {
    auto begins = buffer<bool>(batch.num_tokens);
    std::fill_n(begins.get(), batch.num_tokens, false);
    for (int64_t seq = 0; seq < batch.spans.num_seqs; ++seq) {
        const int64_t first = batch.spans.query_starts[seq];
        begins[first] = batch.spans.kv_lens[seq] == batch.spans.query_starts[seq + 1] - first;
    }
    return begins;
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
    const int64_t input_bytes = std::max({weights->qkv.linear->input_bytes(), weights->output->input_bytes(),
                                          weights->gate_up.linear->input_bytes(), weights->down->input_bytes()});
    auto inputs = buffer<std::byte>(num_tokens * input_bytes);
    auto wide = buffer<float>(num_tokens * std::max(qkv_size, 2 * inner_size));
    auto attended = buffer<float>(num_tokens * attended_size);
    const bool parallel = num_threads > 1 && num_tokens > 4;

    const auto normed = [&](const NormedLinear& layer) {
        const int64_t row_bytes = layer.linear->input_bytes();
#pragma omp parallel num_threads(num_threads) if (parallel)
        {
            auto scratch = buffer<float>(hidden_size);
#pragma omp for schedule(static)
            for (int64_t token = 0; token < num_tokens; ++token)
                round_normed(hidden + token * hidden_size, layer, weights->norm_eps, scratch.get(),
                             inputs.get() + token * row_bytes);
        }
        multiply(*layer.linear, inputs.get(), num_tokens, wide.get(), false, num_threads);
    };
    const auto add_to_hidden = [&](const LinearWeights& layer, auto round) {
        const int64_t row_bytes = layer.input_bytes();
#pragma omp parallel for schedule(static) num_threads(num_threads) if (parallel)
        for (int64_t token = 0; token < num_tokens; ++token) round(token, inputs.get() + token * row_bytes);
        multiply(layer, inputs.get(), num_tokens, hidden, true, num_threads);
    };

    const auto begins = beginnings(*batch);
    normed(weights->qkv);
#pragma omp parallel num_threads(num_threads) if (parallel)
    {
        Scratch scratch(dim);
#pragma omp for schedule(static)
        for (int64_t token = 0; token < num_tokens; ++token)
            place_token(wide.get() + token * qkv_size, weights->num_heads, batch->cos + token * dim,
                        batch->sin + token * dim, *pages, centre, batch->slots[token], begins[token], scratch);
    }
    attend(wide.get(), qkv_size, weights->num_heads, *pages, batch->spans, attended.get(), num_threads);
    add_to_hidden(*weights->output, [&](int64_t token, std::byte* rounded) {
        round_inputs(*weights->output, attended.get() + token * attended_size, rounded);
    });
    normed(weights->gate_up);
    add_to_hidden(*weights->down, [&](int64_t token, std::byte* rounded) {
        round_gated(wide.get() + token * 2 * inner_size, *weights->down, rounded);
    });
}

// Keys [num_tokens, num_kv_heads, head_dim], after RoPE and turned, and values into their slots.
extern "C" void rejoinder_write(const rejoinder::Pages* pages, const float* keys, const float* values,
                                const int64_t* slots, int64_t num_tokens) {
    using namespace rejoinder;
    Scratch scratch(pages->head_dim);
    for (int64_t token = 0; token < num_tokens; ++token)
        for (int64_t head = 0; head < pages->num_kv_heads; ++head) {
            const int64_t at = (token * pages->num_kv_heads + head) * pages->head_dim;
            write_vectors(*pages, slots[token], head, keys + at, values + at, false, scratch);
        }
}

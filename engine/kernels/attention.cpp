#include "attention.h"

#include <cstring>

#include "simd.h"

namespace rejoinder {
namespace {

constexpr int64_t kBlock = 32;        // tokens that are scored together
constexpr int64_t kSplit = 256;       // tokens of one partial result; fixed, so that a result does
                                      // not depend on how the work was shared out
constexpr int64_t kTaskRows = 48;     // rows that pass over the pages together
constexpr int64_t kMaxRows = 6;       // rows in registers
// Fetched into the second cache: the first can wait for too few lines at a time (a quarter slower).
constexpr int64_t kPagesAhead = 2;
constexpr float kLog2E = 1.4426950408889634f;
constexpr int kQueryCodes = 127 * 256;

// A query of one head in 16 bits, as bytes of 256 * high + low.
struct Row {
    float scale;      // of the codes, with 1 / sqrt(head_dim) and the base of exp2 folded in
    int32_t offset;   // takes back the 128 that are added to the keys' codes
    int64_t num_kv;   // tokens that it sees
};

// Running softmax of one row: sum of 2^(score - top) and of the values weighted with it.
struct State {
    float top;
    float sum;
};

// Everything one task works with; arrays by row.
struct Work {
    int64_t num_rows;
    int64_t head_dim;
    Row rows[kTaskRows];
    State states[kTaskRows];
    State parts[kTaskRows];
    Buffer<int8_t> high;   // [num_rows, head_dim]
    Buffer<int8_t> low;
    Buffer<float> totals;  // [num_rows, head_dim], over all splits so far
    Buffer<float> sums;    // [num_rows, head_dim], of the split at hand
    alignas(64) uint8_t high_weights[kTaskRows][kBlock];
    alignas(64) uint8_t low_weights[kTaskRows][kBlock];
    float kept[kTaskRows];    // what the older sums are multiplied with
    float factors[kTaskRows]; // of the weights' codes

    Work(int64_t rows, int64_t head_dim)
        : num_rows(rows), head_dim(head_dim), high(buffer<int8_t>(rows * head_dim)),
          low(buffer<int8_t>(rows * head_dim)), totals(buffer<float>(rows * head_dim)),
          sums(buffer<float>(rows * head_dim)) {}
};

void round_query(const float* query, int64_t head_dim, int64_t num_kv, Row& row, int8_t* high, int8_t* low) {
    __m512 most = _mm512_setzero_ps();
    for (int64_t d = 0; d < head_dim; d += kLanes)
        most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(query + d)));
    const float amax = _mm512_reduce_max_ps(most);
    const __m512 factor = _mm512_set1_ps(amax > 0 ? kQueryCodes / amax : 0.0f);
    __m512i total = _mm512_setzero_si512();
    for (int64_t d = 0; d < head_dim; d += kLanes) {
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(query + d), factor));
        const __m512i top = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
        const __m512i rest = _mm512_sub_epi32(code, _mm512_slli_epi32(top, 8));
        total = _mm512_add_epi32(total, code);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(high + d), _mm512_cvtepi32_epi8(top));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(low + d), _mm512_cvtepi32_epi8(rest));
    }
    row.scale = amax / kQueryCodes * kLog2E / std::sqrt(static_cast<float>(head_dim));
    row.offset = -128 * _mm512_reduce_add_epi32(total);
    row.num_kv = num_kv;
}

// A block of up to 32 tokens of one head, in one page.
struct Block {
    const int8_t* keys;      // first of its tiles of 16
    const int8_t* values;
    const uint16_t* key_scales;
    const uint16_t* value_scales;
    const char* keys_ahead;  // the same block of a later page
    const char* values_ahead;
    int64_t first;           // position of its first token
    int64_t num_tiles;       // 1 or 2
};

inline int32_t four(const void* bytes) {
    int32_t value;
    std::memcpy(&value, bytes, 4);
    return value;
}

inline __m512 half_to_float(const uint16_t* halves, __mmask16 lanes) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, halves));
}

// Scores of R rows from `r0` on → their weights as codes, `kept` and `factors`.
template <int R>
void score(Work& work, int64_t r0, const Block& block, bool fetch) {
    const int64_t quads = work.head_dim / 4;
    __m512i high[R][2], low[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        high[r][0] = high[r][1] = _mm512_setzero_si512();
        low[r][0] = low[r][1] = _mm512_set1_epi32(work.rows[r0 + r].offset);
    }
    const int8_t* tiles[2] = {block.keys, block.keys + (block.num_tiles - 1) * quads * kLineBytes};
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    const int8_t* query_high = work.high.get() + r0 * work.head_dim;
    const int8_t* query_low = work.low.get() + r0 * work.head_dim;
    for (int64_t quad = 0; quad < quads; ++quad) {
        // Signed code + 128 is the code with its highest bit flipped.
        const __m512i first = _mm512_xor_si512(_mm512_loadu_si512(tiles[0] + quad * kLineBytes), flip);
        const __m512i second = _mm512_xor_si512(_mm512_loadu_si512(tiles[1] + quad * kLineBytes), flip);
        if (fetch) {
            _mm_prefetch(block.keys_ahead + quad * 2 * kLineBytes, _MM_HINT_T1);
            _mm_prefetch(block.keys_ahead + quad * 2 * kLineBytes + kLineBytes, _MM_HINT_T1);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const __m512i top = _mm512_set1_epi32(four(query_high + r * work.head_dim + quad * 4));
            const __m512i rest = _mm512_set1_epi32(four(query_low + r * work.head_dim + quad * 4));
            high[r][0] = _mm512_dpbusd_epi32(high[r][0], first, top);
            high[r][1] = _mm512_dpbusd_epi32(high[r][1], second, top);
            low[r][0] = _mm512_dpbusd_epi32(low[r][0], first, rest);
            low[r][1] = _mm512_dpbusd_epi32(low[r][1], second, rest);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const int64_t at = r0 + r;
        const Row& row = work.rows[at];
        State& state = work.parts[at];
        __m512 scores[2];
        __mmask16 seen[2];
        __m512 most = _mm512_set1_ps(-INFINITY);
        for (int half = 0; half < 2; ++half) {
            seen[half] = half < block.num_tiles ? first_lanes(row.num_kv - block.first - half * kLanes) : 0;
            const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[r][half], 8), low[r][half]);
            const __m512 scale = _mm512_mul_ps(half_to_float(block.key_scales + half * kLanes, seen[half]),
                                               _mm512_set1_ps(row.scale));
            scores[half] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale);
            most = _mm512_mask_max_ps(most, seen[half], most, scores[half]);
        }
        const float top = std::max(state.top, _mm512_reduce_max_ps(most));
        if (top == -INFINITY) {  // sees nothing of this block, nor of those before
            work.kept[at] = 1.0f;
            work.factors[at] = 0.0f;
            std::memset(work.high_weights[at], 0, kBlock);
            std::memset(work.low_weights[at], 0, kBlock);
            continue;
        }
        const float kept = top == state.top ? 1.0f : _mm512_cvtss_f32(exp2_ps(_mm512_set1_ps(state.top - top)));
        __m512 sum = _mm512_setzero_ps();
        __m512 weights[2];
        for (int half = 0; half < 2; ++half) {
            const __m512 weight = exp2_ps(_mm512_sub_ps(scores[half], _mm512_set1_ps(top)));
            sum = _mm512_mask_add_ps(sum, seen[half], sum, weight);
            weights[half] = _mm512_maskz_mul_ps(seen[half], weight, half_to_float(block.value_scales + half * kLanes, seen[half]));
        }
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(weights[0], weights[1]));
        const __m512 factor = _mm512_set1_ps(largest > 0 ? 65535.0f / largest : 0.0f);
        for (int half = 0; half < 2; ++half) {
            const __m512i code = _mm512_cvtps_epu32(_mm512_mul_ps(weights[half], factor));
            _mm_store_si128(reinterpret_cast<__m128i*>(work.high_weights[at] + half * kLanes),
                            _mm512_cvtepi32_epi8(_mm512_srli_epi32(code, 8)));
            _mm_store_si128(reinterpret_cast<__m128i*>(work.low_weights[at] + half * kLanes), _mm512_cvtepi32_epi8(code));
        }
        state.sum = state.sum * kept + _mm512_reduce_add_ps(sum);
        state.top = top;
        work.kept[at] = kept;
        work.factors[at] = largest / 65535.0f;
    }
}

// Adds the block's values to the sums of R rows; N registers of head_dim at a time.
template <int R, int N>
void weigh(Work& work, int64_t r0, const Block& block, int64_t d, bool fetch) {
    const int64_t stride = work.head_dim * 4;
    __m512i high[R][N], low[R][N];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) high[r][n] = low[r][n] = _mm512_setzero_si512();
    const int8_t* values = block.values + d * 4;
    for (int64_t quad = 0; quad < block.num_tiles * 4; ++quad) {
        __m512i codes[N];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            codes[n] = _mm512_loadu_si512(values + quad * stride + n * kLineBytes);
            if (fetch) _mm_prefetch(block.values_ahead + d * 4 + quad * stride + n * kLineBytes, _MM_HINT_T1);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const __m512i top = _mm512_set1_epi32(four(work.high_weights[r0 + r] + quad * 4));
            const __m512i rest = _mm512_set1_epi32(four(work.low_weights[r0 + r] + quad * 4));
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) {
                high[r][n] = _mm512_dpbusd_epi32(high[r][n], top, codes[n]);
                low[r][n] = _mm512_dpbusd_epi32(low[r][n], rest, codes[n]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m512 factor = _mm512_set1_ps(work.factors[r0 + r]);
        const __m512 kept = _mm512_set1_ps(work.kept[r0 + r]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            float* sum = work.sums.get() + (r0 + r) * work.head_dim + d + n * kLanes;
            const __m512i code = _mm512_add_epi32(_mm512_slli_epi32(high[r][n], 8), low[r][n]);
            const __m512 older = _mm512_mul_ps(_mm512_loadu_ps(sum), kept);
            _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), factor, older));
        }
    }
}

template <int R>
void attend_block_rows(Work& work, int64_t r0, const Block& block) {
    const bool fetch = r0 == 0 && block.keys_ahead != nullptr;
    score<R>(work, r0, block, fetch);
    int64_t d = 0;
    for (; d + 2 * kLanes <= work.head_dim; d += 2 * kLanes) weigh<R, 2>(work, r0, block, d, fetch);
    for (; d < work.head_dim; d += kLanes) weigh<R, 1>(work, r0, block, d, fetch);
}

void attend_block(Work& work, const Block& block) {
    for (int64_t row = 0; row < work.num_rows;) {
        const int64_t left = work.num_rows - row;
        const int64_t num_parts = (left + kMaxRows - 1) / kMaxRows;
        const int64_t rows = (left + num_parts - 1) / num_parts;
        switch (rows) {
            case 1: attend_block_rows<1>(work, row, block); break;
            case 2: attend_block_rows<2>(work, row, block); break;
            case 3: attend_block_rows<3>(work, row, block); break;
            case 4: attend_block_rows<4>(work, row, block); break;
            case 5: attend_block_rows<5>(work, row, block); break;
            case 6: attend_block_rows<6>(work, row, block); break;
        }
        row += rows;
    }
}

// Partial result over tokens first … last, all within one split.
// `num_pages`: of the whole sequence, so that the next split is fetched ahead as well.
void attend_split(Work& work, const Pages& pages, const int64_t* table, int64_t num_pages, int64_t head,
                  int64_t first, int64_t last) {
    for (int64_t r = 0; r < work.num_rows; ++r) work.parts[r] = {-INFINITY, 0.0f};
    std::memset(work.sums.get(), 0, work.num_rows * work.head_dim * sizeof(float));
    const int64_t head_bytes = pages.page_tokens * pages.head_dim;
    for (int64_t at = first; at < last;) {
        const int64_t page = at / pages.page_tokens;
        const int64_t place = at % pages.page_tokens;
        const int64_t within = head * head_bytes + place * pages.head_dim;
        const int64_t offset = table[page] * pages.page_bytes;
        const bool ahead = page + kPagesAhead < num_pages;
        const int64_t offset_ahead = ahead ? table[page + kPagesAhead] * pages.page_bytes : 0;
        const int64_t scale_at = head * pages.page_tokens + place;
        const auto at_bytes = [](const auto* base, int64_t bytes) {
            return reinterpret_cast<decltype(base)>(reinterpret_cast<const char*>(base) + bytes);
        };
        if (ahead) {
            // Of all rows, so once: a missing line of scales costs as much as one of codes.
            _mm_prefetch(at_bytes(reinterpret_cast<const char*>(pages.key_scales), offset_ahead + 2 * scale_at), _MM_HINT_T1);
            _mm_prefetch(at_bytes(reinterpret_cast<const char*>(pages.value_scales), offset_ahead + 2 * scale_at), _MM_HINT_T1);
        }
        const Block block{
            pages.keys + offset + within,
            pages.values + offset + within,
            at_bytes(static_cast<const uint16_t*>(pages.key_scales), offset) + scale_at,
            at_bytes(static_cast<const uint16_t*>(pages.value_scales), offset) + scale_at,
            ahead ? reinterpret_cast<const char*>(pages.keys + offset_ahead + within) : nullptr,
            ahead ? reinterpret_cast<const char*>(pages.values + offset_ahead + within) : nullptr,
            at,
            std::min<int64_t>(2, (pages.page_tokens - place) / kLanes),
        };
        attend_block(work, block);
        at += block.num_tiles * kLanes;
    }
}

// totals, states += the split's sums, parts. Always in the order of splits.
void merge(State& state, float* totals, const State& part, const float* sums, int64_t head_dim) {
    if (part.top == -INFINITY) return;
    const float top = std::max(state.top, part.top);
    const float kept = state.top == -INFINITY ? 0.0f : std::exp2(state.top - top);
    const float added = std::exp2(part.top - top);
    state.sum = state.sum * kept + part.sum * added;
    state.top = top;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
        const __m512 older = _mm512_mul_ps(_mm512_loadu_ps(totals + d), _mm512_set1_ps(kept));
        const __m512 newer = _mm512_loadu_ps(sums + d);
        _mm512_storeu_ps(totals + d, _mm512_fmadd_ps(newer, _mm512_set1_ps(added), older));
    }
}

void finish(const State& state, const float* totals, int64_t head_dim, float* result) {
    const __m512 factor = _mm512_set1_ps(1.0f / state.sum);
    for (int64_t d = 0; d < head_dim; d += kLanes)
        _mm512_storeu_ps(result + d, _mm512_mul_ps(_mm512_loadu_ps(totals + d), factor));
}

// The rows of one task: query heads of one KV head, of consecutive tokens of one sequence.
struct Task {
    int64_t seq;
    int64_t head;
    int64_t first_row;  // counted over tokens, then query heads of the group
    int64_t num_rows;
};

struct Step {
    const float* queries;
    int64_t query_stride;
    int64_t num_heads;
    const Pages& pages;
    const Spans& spans;
    float* result;

    int64_t group() const { return num_heads / pages.num_kv_heads; }
    int64_t token(const Task& task, int64_t row) const {
        return spans.query_starts[task.seq] + (task.first_row + row) / group();
    }
    int64_t query_head(const Task& task, int64_t row) const {
        return task.head * group() + (task.first_row + row) % group();
    }
    float* result_of(const Task& task, int64_t row) const {
        return result + (token(task, row) * num_heads + query_head(task, row)) * pages.head_dim;
    }
    // The tokens that a row sees.
    int64_t num_kv(const Task& task, int64_t row) const {
        return spans.kv_lens[task.seq] - (spans.query_starts[task.seq + 1] - 1 - token(task, row));
    }
    void round(const Task& task, Work& work) const {
        for (int64_t r = 0; r < task.num_rows; ++r) {
            const float* query = queries + token(task, r) * query_stride + query_head(task, r) * pages.head_dim;
            round_query(query, pages.head_dim, num_kv(task, r), work.rows[r],
                        work.high.get() + r * pages.head_dim, work.low.get() + r * pages.head_dim);
            work.states[r] = {-INFINITY, 0.0f};
        }
        std::memset(work.totals.get(), 0, task.num_rows * pages.head_dim * sizeof(float));
    }
    void split(const Task& task, Work& work, int64_t index) const {
        const int64_t num_kv_of_all = num_kv(task, task.num_rows - 1);
        const int64_t num_pages = (num_kv_of_all + pages.page_tokens - 1) / pages.page_tokens;
        attend_split(work, pages, spans.page_tables + task.seq * spans.table_width, num_pages, task.head,
                     index * kSplit, std::min((index + 1) * kSplit, num_kv_of_all));
    }
    void run(const Task& task) const {
        Work work(task.num_rows, pages.head_dim);
        round(task, work);
        const int64_t num_kv_of_all = num_kv(task, task.num_rows - 1);
        for (int64_t index = 0; index * kSplit < num_kv_of_all; ++index) {
            split(task, work, index);
            for (int64_t r = 0; r < task.num_rows; ++r)
                merge(work.states[r], work.totals.get() + r * pages.head_dim, work.parts[r],
                      work.sums.get() + r * pages.head_dim, pages.head_dim);
        }
        for (int64_t r = 0; r < task.num_rows; ++r)
            finish(work.states[r], work.totals.get() + r * pages.head_dim, pages.head_dim, result_of(task, r));
    }
    // The same sums in the same order, but the splits go to all threads.
    void run_split(const Task& task, int num_threads) const {
        const int64_t dim = pages.head_dim;
        const int64_t num_splits = (num_kv(task, task.num_rows - 1) + kSplit - 1) / kSplit;
        auto parts = buffer<State>(num_splits * task.num_rows);
        auto sums = buffer<float>(num_splits * task.num_rows * dim);
#pragma omp parallel num_threads(num_threads)
        {
            Work work(task.num_rows, dim);
            round(task, work);
#pragma omp for schedule(dynamic)
            for (int64_t index = 0; index < num_splits; ++index) {
                split(task, work, index);
                std::memcpy(parts.get() + index * task.num_rows, work.parts, task.num_rows * sizeof(State));
                std::memcpy(sums.get() + index * task.num_rows * dim, work.sums.get(), task.num_rows * dim * sizeof(float));
            }
        }
        auto totals = buffer<float>(dim);
        for (int64_t r = 0; r < task.num_rows; ++r) {
            State state{-INFINITY, 0.0f};
            std::memset(totals.get(), 0, dim * sizeof(float));
            for (int64_t index = 0; index < num_splits; ++index) {
                const int64_t at = index * task.num_rows + r;
                merge(state, totals.get(), parts[at], sums.get() + at * dim, dim);
            }
            finish(state, totals.get(), dim, result_of(task, r));
        }
    }
};

}  // namespace

void attend(const float* queries, int64_t query_stride, int64_t num_heads, const Pages& pages,
            const Spans& spans, float* result, int num_threads) {
    const Step step{queries, query_stride, num_heads, pages, spans, result};
    const int64_t group = step.group();
    const int64_t task_rows = std::max<int64_t>(1, kTaskRows / group) * group;
    const int64_t task_limit = std::min(task_rows, kTaskRows);
    int64_t num_tasks = 0;
    for (int64_t seq = 0; seq < spans.num_seqs; ++seq) {
        const int64_t rows = (spans.query_starts[seq + 1] - spans.query_starts[seq]) * group;
        num_tasks += (rows + task_limit - 1) / task_limit * pages.num_kv_heads;
    }
    auto tasks = buffer<Task>(num_tasks);
    int64_t next = 0;
    for (int64_t seq = 0; seq < spans.num_seqs; ++seq) {
        const int64_t rows = (spans.query_starts[seq + 1] - spans.query_starts[seq]) * group;
        for (int64_t row = 0; row < rows; row += task_limit)
            for (int64_t head = 0; head < pages.num_kv_heads; ++head)
                tasks[next++] = {seq, head, row, std::min(task_limit, rows - row)};
    }
    if (num_threads > 1 && num_tasks < 4 * num_threads) {
        for (int64_t index = 0; index < num_tasks; ++index) step.run_split(tasks[index], num_threads);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(num_threads) if (num_threads > 1)
    for (int64_t index = 0; index < num_tasks; ++index) step.run(tasks[index]);
}

}  // namespace rejoinder

extern "C" void rejoinder_attend(const rejoinder::Pages* pages, const rejoinder::Spans* spans, const float* queries,
                                 int64_t query_stride, int64_t num_heads, float* result, int64_t num_threads) {
    rejoinder::attend(queries, query_stride, num_heads, *pages, *spans, result, static_cast<int>(num_threads));
}

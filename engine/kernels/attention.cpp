#include "attention.h"

#include <cstring>

#include "block.h"
#include "hadamard.h"
#include "phases.h"

namespace rejoinder {
namespace {

constexpr int64_t kSplit = 256;    // tokens of one partial result; fixed, so that a result does not
                                   // depend on how the work was shared out
constexpr int64_t kPagesAhead = 2; // of what is fetched meanwhile
constexpr float kLog2E = 1.4426950408889634f;

// `code_sums` [num_groups]; `head` of the keys.
void round_query(const float* query, const Pages& pages, int64_t head, Row& row, Factors* factors, int32_t* code_sums) {
    Floats most = floats(0.0f);
    for (int64_t d = 0; d < pages.head_dim; d += kLanes) most = max(most, abs(load(query + d)));
    const float amax = largest(most);
    const Floats factor = floats(amax > 0 ? kFactorMax / amax : 0.0f);
    for (int64_t group = 0; group < pages.num_groups; ++group) {
        Ints sum = ints(0);
        for (int64_t d = group * pages.group_dim(); d < (group + 1) * pages.group_dim(); d += kLanes) {
            const Ints codes = to_ints(load(query + d) * factor);
            sum = sum + codes;
            store_factors(factors + d / 4, codes);
        }
        code_sums[group] = total(sum);
    }
    const float scale = kLog2E / std::sqrt(static_cast<float>(pages.head_dim));
    row.scale = amax / kFactorMax * scale;
    row.first = 0.0f;
    if (pages.first_offset == nullptr) return;
    Floats lacking = floats(0.0f);
    for (int64_t d = 0; d < pages.head_dim; d += kLanes)
        lacking = fmadd(load(query + d), load(pages.first_offset + head * pages.head_dim + d), lacking);
    row.first = total(lacking) * scale;
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
        const int64_t scale_at = head * pages.num_groups * pages.page_tokens + place;
        const auto at_bytes = [](const auto* base, int64_t bytes) {
            return reinterpret_cast<decltype(base)>(reinterpret_cast<const char*>(base) + bytes);
        };
        if (ahead) {
            // Of all rows, so once: a missing line of scales costs as much as one of codes.
            _mm_prefetch(at_bytes(reinterpret_cast<const char*>(pages.key_scales), offset_ahead + 2 * scale_at), _MM_HINT_T1);
            _mm_prefetch(at_bytes(reinterpret_cast<const char*>(pages.value_scales), offset_ahead + 2 * scale_at), _MM_HINT_T1);
        }
        const uint16_t* key_scales = at_bytes(static_cast<const uint16_t*>(pages.key_scales), offset) + scale_at;
        const int64_t num_tiles = std::min<int64_t>(2, (pages.page_tokens - place) / kLanes);
        const Block block{
            pages.keys + offset + within,
            pages.values + offset + within,
            key_scales,
            at_bytes(static_cast<const uint16_t*>(pages.value_scales), offset) + scale_at,
            pages.page_tokens,
            ahead ? reinterpret_cast<const char*>(pages.keys + offset_ahead + within) : nullptr,
            ahead ? reinterpret_cast<const char*>(pages.values + offset_ahead + within) : nullptr,
            at,
            num_tiles,
            any_signed(key_scales) || (num_tiles > 1 && any_signed(key_scales + kLanes)),
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
    for (int64_t d = 0; d < head_dim; d += kLanes)
        store(totals + d, fmadd(load(sums + d), floats(added), load(totals + d) * floats(kept)));
}

void finish(const State& state, const float* totals, const Pages& pages, float* result) {
    const Floats factor = floats(1.0f / state.sum);
    for (int64_t d = 0; d < pages.head_dim; d += kLanes) store(result + d, load(totals + d) * factor);
    transform(result, pages.head_dim);  // the pages hold H v
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
    int64_t first_kv(const Task& task, int64_t row) const {
        return pages.window == 0 ? 0 : std::max<int64_t>(0, num_kv(task, row) - pages.window);
    }
    // Splits of which some row sees something. They begin at multiples of kSplit, wherever a
    // window does; the first row sees furthest back, the last furthest on.
    int64_t first_split(const Task& task) const { return first_kv(task, 0) / kSplit; }
    int64_t end_split(const Task& task) const { return (num_kv(task, task.num_rows - 1) + kSplit - 1) / kSplit; }
    void round(const Task& task, Work& work) const {
        for (int64_t r = 0; r < task.num_rows; ++r) {
            const float* query = queries + token(task, r) * query_stride + query_head(task, r) * pages.head_dim;
            round_query(query, pages, task.head, work.rows[r], work.queries.get() + r * pages.head_dim / 4,
                        work.code_sums.get() + r * pages.num_groups);
            work.rows[r].first_kv = first_kv(task, r);
            work.rows[r].num_kv = num_kv(task, r);
            work.states[r] = {-INFINITY, 0.0f};
        }
        std::memset(work.totals.get(), 0, task.num_rows * pages.head_dim * sizeof(float));
    }
    void split(const Task& task, Work& work, int64_t index) const {
        const int64_t num_kv_of_all = num_kv(task, task.num_rows - 1);
        const int64_t num_pages = (num_kv_of_all + pages.page_tokens - 1) / pages.page_tokens;
        // Blocks, too, begin where they do without a window.
        const int64_t seen = first_kv(task, 0) / kBlock * kBlock;
        attend_split(work, pages, spans.page_tables + task.seq * spans.table_width, num_pages, task.head,
                     std::max(index * kSplit, seen), std::min((index + 1) * kSplit, num_kv_of_all));
    }
    void run(const Task& task) const {
        Work work(task.num_rows, pages);
        round(task, work);
        for (int64_t index = first_split(task); index < end_split(task); ++index) {
            split(task, work, index);
            for (int64_t r = 0; r < task.num_rows; ++r)
                merge(work.states[r], work.totals.get() + r * pages.head_dim, work.parts[r],
                      work.sums.get() + r * pages.head_dim, pages.head_dim);
        }
        for (int64_t r = 0; r < task.num_rows; ++r)
            finish(work.states[r], work.totals.get() + r * pages.head_dim, pages, result_of(task, r));
    }
    // The same sums in the same order, but the splits go to all threads.
    void run_split(const Task& task, int num_threads) const {
        const int64_t dim = pages.head_dim;
        const int64_t first = first_split(task);
        const int64_t num_splits = end_split(task) - first;
        auto parts = buffer<State>(num_splits * task.num_rows);
        auto sums = buffer<float>(num_splits * task.num_rows * dim);
#pragma omp parallel num_threads(num_threads)
        {
            Work work(task.num_rows, pages);
            round(task, work);
#pragma omp for schedule(dynamic)
            for (int64_t index = 0; index < num_splits; ++index) {
                split(task, work, first + index);
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
            finish(state, totals.get(), pages, result_of(task, r));
        }
    }
};

}  // namespace

void attend(const float* queries, int64_t query_stride, int64_t num_heads, const Pages& pages,
            const Spans& spans, float* result, int num_threads) {
    const Timed timed(phase_times.attention_ns);
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

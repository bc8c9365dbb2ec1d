// How long the kernels have spent on what, since the library was loaded; of the thread that calls
// them. Two looks at a clock for each product: some 50 ns.
#pragma once

#include <chrono>
#include <cstdint>

namespace rejoinder {

struct PhaseTimes {
    int64_t attention_ns;
    int64_t linear_ns;
};

extern PhaseTimes phase_times;

// Adds its own lifetime to one of them.
class Timed {
   public:
    explicit Timed(int64_t& total_ns) : total_ns_(total_ns), begin_(Clock::now()) {}
    ~Timed() {
        total_ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    int64_t& total_ns_;
    Clock::time_point begin_;
};

}  // namespace rejoinder

#include "phases.h"

namespace rejoinder {

PhaseTimes phase_times{};

}  // namespace rejoinder

extern "C" void rejoinder_phase_times(rejoinder::PhaseTimes* times) { *times = rejoinder::phase_times; }

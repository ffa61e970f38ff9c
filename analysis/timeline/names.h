// Classifies the names in a trace. Names are read as written, including JSON escapes. Only
// `CollectiveNamed` allocates.
#pragma once

#include <cstdint>
#include <string_view>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// Bits, because a host span may have several classes ("load checkpoint data").
enum HostClass : uint8_t {
  kGarbageCollection = 1 << 0,
  kCheckpoint = 1 << 1,
  kDataLoading = 1 << 2,
  kCompilation = 1 << 3,
  kCommunication = 1 << 4,
  kSynchronisation = 1 << 5,  // a call that returns when the GPU is done
};
inline constexpr int kHostClasses = 6;

// Returns the cause of bit `i`; bits are in the order in which causes are tested.
v1::TimelineGap::Cause CauseOf(int i);
// Returns a cause's name in the details, such as "data-loading".
const char* CauseName(v1::TimelineGap::Cause cause);

// Returns the classes of a host span by its name, for any recorder (an operator, an annotation, a
// Python function, a runtime call). If there are none, returns 0. Running compiled code is not
// compilation, and activation recomputation is not a checkpoint.
uint8_t ClassesOfHost(std::string_view name);

// Returns true for a call of the driver or runtime that puts work on a GPU.
bool IsLaunch(std::string_view name);

// Returns true for a kernel that communicates, by its name, in any spelling of the known libraries
// and collectives. at::native and triton_ never are.
bool IsCommunicationKernel(std::string_view name);

// Returns true for a point-to-point operation of a pipeline, by a kernel's collective name: "send",
// "recv".
bool IsPointToPoint(std::string_view collective);

// Returns true if only training has such a name: gradients, optimizers. For names of host spans and
// of kernels.
bool StatesTraining(std::string_view name);

// Parses a step mark: "ProfilerStep#12" gives true and 12.
bool StepMark(std::string_view name, int64_t* number);

}  // namespace plumbline::timeline

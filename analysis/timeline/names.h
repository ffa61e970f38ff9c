// What a name in a trace stands for. Names are read as they are written, escapes of JSON included;
// nothing here allocates but `CollectiveNamed`.
#pragma once

#include <cstdint>
#include <string_view>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// Bits: a host span may be of several classes ("load checkpoint data").
enum HostClass : uint8_t {
  kGarbageCollection = 1 << 0,
  kCheckpoint = 1 << 1,
  kDataLoading = 1 << 2,
  kCompilation = 1 << 3,
  kCommunication = 1 << 4,
  kSynchronisation = 1 << 5,  // a call that returns once the GPU is done
};
inline constexpr int kHostClasses = 6;

// The class that bit `i` is, in the order in which causes are asked for.
v1::TimelineGap::Cause CauseOf(int i);
// "data-loading": as details name a cause.
const char* CauseName(v1::TimelineGap::Cause cause);

// The classes of a host span by its name, whoever recorded it (an operator, an annotation, a Python
// function, a call of the runtime). 0: none. Running compiled code is no compilation, activation
// recomputation no checkpoint.
uint8_t ClassesOfHost(std::string_view name);

// A call of the driver or runtime that puts work on a GPU.
bool IsLaunch(std::string_view name);

// A kernel that communicates, by its name: in any spelling of the known libraries and collectives;
// at::native and triton_ never are.
bool IsCommunicationKernel(std::string_view name);

// "send", "recv": a point-to-point operation of a pipeline by a kernel's collective name.
bool IsPointToPoint(std::string_view collective);

// Only training does it: gradients, optimizers. By the name of a host span, or of a kernel.
bool SaysTraining(std::string_view name);

// "ProfilerStep#12" -> true, 12.
bool StepMark(std::string_view name, int64_t* number);

}  // namespace plumbline::timeline

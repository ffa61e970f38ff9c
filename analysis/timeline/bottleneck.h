// Finds the bottleneck of a rank: the time that is not its own work, and what that work waits for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

struct Bottleneck {
  // "cable": communication that is not hidden. "bubble": the same in a pipeline, where it waits for
  // other stages. "gpu-traffic": the GPU runs the rank's kernels. "host": not a bottleneck of a
  // cluster; the GPU waits for its host. (A timeline does not show memory.)
  std::string_view id;
  double share = 0;  // of the window
};

// Returns the bottlenecks, the most important one first: cable, bubble and host if they are at
// least a twentieth of the time, by their shares; then traffic inside the GPU; then the rest. If
// there is no GPU event, returns none.
std::vector<Bottleneck> BottlenecksOf(const v1::Timeline& timeline);
// Returns those of several ranks together, as shares of their common time. Ranks without any are
// ignored.
std::vector<Bottleneck> BottlenecksOf(const std::vector<const v1::Timeline*>& timelines);

// Returns a name such as "the cable". If the id is unknown, returns an empty string.
std::string_view BottleneckName(std::string_view id);
// Returns one line with the first two bottlenecks and their shares. If there are none, returns an
// empty string.
std::string BottleneckLine(const std::vector<Bottleneck>& bottlenecks);

}  // namespace plumbline::timeline

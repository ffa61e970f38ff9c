// Which toll a rank pays: what of its time is not its own work, and what that work waits for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

struct Toll {
  // "cable": communication that nothing hides; "bubble": the same in a pipeline, where it is
  // waiting for other stages; "gpu-traffic": the GPU is busy with kernels of its own; "host": none
  // of the tolls of a cluster, the GPU waits for its host. (Memory is told by no timeline.)
  std::string_view id;
  double share = 0;  // of the window
};

// The toll that is paid first: of cable, bubble and host those from a twentieth of the time on, by
// their shares; then traffic inside the GPU; then the rest. Empty: no GPU event.
std::vector<Toll> TollsOf(const v1::Timeline& timeline);
// Of several ranks together, those that have none left out: shares of their common time.
std::vector<Toll> TollsOf(const std::vector<const v1::Timeline*>& timelines);

// "the cable"; empty: no toll has that id.
std::string_view TollName(std::string_view id);
// "Toll: the cable, 23 % of the time; behind it traffic inside the GPU, 71 %." Empty without tolls.
std::string TollLine(const std::vector<Toll>& tolls);

}  // namespace plumbline::timeline

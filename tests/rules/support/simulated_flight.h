// A job that stands still, as the flight recorders of its ranks would show it. Ranks launch
// collectives ahead of the GPU, each to a depth of its own; groups are the world, the data-parallel
// groups across stages, and the pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules::testing {

struct FlightSpec {
  int ranks = 8;
  int stages = 1;  // of a pipeline: sends and receives between rank and rank + ranks/stages
  int steps = 6;   // before the fault
  int ahead = 12;  // operations that a rank may have launched beyond what is done
  // "absent": a rank stops before a collective; "stuck": its collective does not end although its
  // peers' did; "shape", "dtype", "operation": what it hands in differs; "all": nobody gets out;
  // "times": its dump was written earlier than the others'; "order": it begins the collectives of
  // two groups the other way round; "sends": it and the next rank send to each other, and nobody
  // receives; "uneven": an all-gather of uneven parts at which all stand; "": nothing is wrong.
  std::string fault;
  int culprit = 5;
  int culprits = 1;    // from `culprit` on
  bool dump = true;    // the culprit left one
  bool young = false;  // written a moment after what is pending was launched
  std::string poison;  // "numbers": sequence numbers and members beyond all bounds
  uint64_t seed = 1;
};

// "ranks = 8", one setting. Throws std::runtime_error on an unknown key.
void Set(FlightSpec& spec, const std::string& key, const std::string& value);

// By rank, of those that left a dump.
std::map<uint32_t, v1::FlightRecorder> SimulatedFlight(const FlightSpec& spec);
v1::Batch FlightRun(const FlightSpec& spec);

}  // namespace plumbline::rules::testing

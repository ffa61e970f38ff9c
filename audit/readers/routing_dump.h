// A safetensors dump of kind "routing" as routing evidence: tensors and metadata of the contract's
// Dumps table, checked against each other. What is well formed but cannot be judged (indices out of
// range, k > E, no tokens) is left to the rules, which answer inconclusive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/readers/file.h"
#include "audit/readers/reader.h"
#include "audit/readers/safetensors_header.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Which call of which process a dump of any kind records: the metadata that every kind takes.
struct DumpSite {
  std::string run;
  uint32_t attempt = 0;
  int64_t step = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;  // ranks of the run; 0: not said
  std::string layer;
  std::string op;
};

// Collects every problem, not only the first.
DumpSite ReadDumpSite(const SafetensorsHeader& header, std::vector<Problem>* problems);

// Checks names, dtypes, shapes and metadata values, and that the tensors fit one message. Names
// that are none of the contract's are ignored unless they look like a misspelling of one.
v1::RoutingConfig ReadRoutingConfig(const SafetensorsHeader& header,
                                    std::vector<Problem>* problems);

// True when the tensors can only be a router's, for dumps that do not say their kind.
bool LooksLikeRouting(const SafetensorsHeader& header);

// Reads the tensors whole (the 8 MiB of live samples do not bind here) and measures them. The
// header has been through ReadRoutingConfig without a problem. The summary is absent when the
// content cannot be measured.
absl::Status LoadRouting(const InputFile& file, const SafetensorsHeader& header,
                         v1::RoutingConfig config, v1::Evidence* evidence);

}  // namespace plumbline::audit

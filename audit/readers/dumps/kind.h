// A kind of dump: how its header is checked and its tensors become evidence. Each kind has one file
// (dumps/routing.cc, ...), and is listed in proto/evidence_kinds.inc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/safetensors/header.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

struct DumpKind {
  const char* name;  // metadata `kind`

  // Returns true if the tensors can only be of this kind. Used for dumps that do not state their
  // kind.
  bool (*looks_like)(const SafetensorsHeader& header);

  // Checks names, dtypes, shapes and metadata values, and that the tensors fit in one message. What
  // is well formed but cannot be judged is left to the rules, which answer inconclusive.
  void (*check)(const SafetensorsHeader& header, std::vector<Problem>* problems);

  // Returns the site's op if the metadata names none.
  std::string (*default_op)(const SafetensorsHeader& header);

  // Fills evidence->what, sample_size and exercised; site and step are set. `check` has found no
  // problem.
  absl::Status (*load)(const InputFile& file, const SafetensorsHeader& header,
                       v1::Evidence* evidence);
};

// One per kind, each in the file of its name.
#define PLUMB_KIND(Name, NAME, name, number, op) extern const DumpKind k##Name##Dump;
#define PLUMB_KIND_WITHOUT_DUMP(Name, NAME, name, number, op)
#include "proto/evidence_kinds.inc"

// Adds to a load's status the byte offset of its problem in the file.
absl::Status AtByte(absl::Status status, uint64_t byte);
uint64_t ByteOf(const absl::Status& status);  // 0 if the status has no offset

// Returns every kind that this version judges. Static storage.
const std::vector<const DumpKind*>& DumpKinds();

// Returns the dump's kind, from its metadata, otherwise from its tensors. If no rule judges it,
// returns nullptr, and the report has the reason.
const DumpKind* KindOf(const SafetensorsHeader& header, InputReport* report);

}  // namespace plumbline::audit

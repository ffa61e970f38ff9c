// A kind of dump: functions that check its header and convert its tensors to evidence. Each kind
// has one file (dumps/routing.cc, ...), and is listed in proto/evidence_kinds.inc.
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
  const char* name;  // value of the metadata `kind`

  // Returns true if the tensors can only be of this kind. Used for dumps that do not state their
  // kind.
  bool (*looks_like)(const SafetensorsHeader& header);

  // Checks names, dtypes, shapes and metadata values, and that the tensors fit in one message.
  // Accepts a well-formed dump that cannot be judged: the rules then return inconclusive.
  void (*check)(const SafetensorsHeader& header, std::vector<Problem>* problems);

  // Returns the site's op if the metadata names none.
  std::string (*default_op)(const SafetensorsHeader& header);

  // Fills evidence->what, sample_size and exercised. The caller has set site and step, and `check`
  // has found no problem.
  absl::Status (*load)(const InputFile& file, const SafetensorsHeader& header,
                       v1::Evidence* evidence);
};

// Declares one constant per kind. Its definition is in the file with the kind's name.
#define PLUMB_KIND(Name, NAME, name, number, op) extern const DumpKind k##Name##Dump;
#define PLUMB_KIND_WITHOUT_DUMP(Name, NAME, name, number, op)
#include "proto/evidence_kinds.inc"

// Adds to the status of a load the byte offset of the problem in the file.
absl::Status AtByte(absl::Status status, uint64_t byte);
uint64_t ByteOf(const absl::Status& status);  // Returns this offset, or 0 if the status has none.

// Returns every kind that this version judges. Static storage.
const std::vector<const DumpKind*>& DumpKinds();

// Returns the dump's kind, from its metadata or else from its tensors. If no rule judges this kind,
// returns nullptr and adds the reason to the report.
const DumpKind* KindOf(const SafetensorsHeader& header, InputReport* report);

}  // namespace plumbline::audit

// The finding of a run that is not judged, and its place in the journal. It follows from no
// evidence: so a server that holds a run writes it down as an update of the incident, which opens
// it, and every later reader of the journal (a restart, an audit of the stored run) says the same
// from that alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::rules {

inline constexpr const char* kQuarantineRule = "meta/data-loss";

// `reason`: why; `entry`: of the journal, where it was judged last.
v1::Verdict QuarantineVerdict(const std::string& run, const std::string& reason, uint64_t entry);

// What the journal keeps of it: an update without an action, by "plumbd", of the incident that is
// named "quarantine:RUN" instead of by its fingerprint, which says of no finding whose it is.
// Servers from before it pass over an update without an action.
v1::IncidentUpdate QuarantineUpdate(const std::string& run, const std::string& reason,
                                    uint64_t entry);
// The finding that the event opens; nothing: it is another event.
std::optional<v1::Verdict> QuarantineOpened(const v1::JudgeEvent& event);

}  // namespace plumbline::rules

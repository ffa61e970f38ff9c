// What people add to runs: tags, a note, a shown name, and whether the run is archived or deleted.
// It is stored as long as the server has the run.
//
// In the journal an edit is an update without an action, of the incident named "run:RUN" instead of
// by a fingerprint, so that it belongs to no finding. Older servers ignore it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/archive.h"
#include "plumbline/v1/journal_event.pb.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// Returns InvalidArgument, with what is expected, if the edit changes nothing or has a text that is
// too long.
absl::Status CheckEdit(const v1::RunEdit& edit);

// Returns NAME of the first tag "owner:NAME"; empty if there is none.
std::string OwnerIn(const v1::RunLabels& labels);

// Not thread-safe.
class RunEdits {
 public:
  static constexpr size_t kMostTags = 32;     // per run
  static constexpr size_t kMostEarlier = 16;  // edits that can be undone, per run

  // Returns the edit's form in the journal.
  static v1::IncidentUpdate UpdateOf(const v1::RunEdit& edit, const std::string& who);
  // Returns the edit of an update; nullopt if it is another one.
  static std::optional<v1::RunEdit> EditOf(const v1::IncidentUpdate& update);

  void Apply(const v1::RunEdit& edit, const std::string& who, int64_t unix_ns);
  v1::RunLabels Of(const std::string& run) const;
  std::set<std::string> Deleted() const;
  void Forget(const std::string& run) { runs_.erase(run); }

  void Persist(Archive& archive);

 private:
  struct Entry {
    v1::RunLabels labels;
    std::vector<v1::RunLabels> earlier;  // oldest first
    void Persist(Archive& archive);
  };
  std::map<std::string, Entry> runs_;
};

}  // namespace plumbline::server

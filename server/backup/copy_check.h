// Checks that a copied journal and its checkpoints are complete.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline::server {

struct CopyState {
  uint64_t first_entry = 0, last_entry = 0;  // 0: the journal is empty
  uint64_t checkpoint_entry = 0;             // journal entry of the newest checkpoint; 0: there is
                                             // none
  size_t checkpoints = 0;
  std::string last_segment;  // its path; empty: there is none
  uint64_t whole_bytes = 0;  // of last_segment, up to its last whole frame
  uint64_t known_lost = 0;   // entries that the server lists as gaps: retention, damage
};

// Reads every frame of `directory`/journal and every checkpoint. Returns DataLoss if a checkpoint
// is damaged, or if an entry between the first one and the newest one of journal or checkpoints is
// neither present nor listed in gaps.plg. An incomplete last frame is not damage.
absl::StatusOr<CopyState> CheckCopy(const std::string& directory);

}  // namespace plumbline::server

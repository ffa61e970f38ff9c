// Lets other judging threads continue while this one uses only data of its runs.
#pragma once

#include "server/judge/judge.h"

namespace plumbline::server {

// `what` must not use anything that turn_lock_ guards.
template <typename What>
void Judge::WithTakeover(const What& what) {
  turn_lock_.OpenToTakeover(&worker_->work);
  what();
  turn_lock_.CloseToTakeover(&worker_->work);
}

}  // namespace plumbline::server

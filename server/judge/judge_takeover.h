// How a judging thread lets others go on while it is at what is of its runs alone.
#pragma once

#include "server/judge/judge.h"

namespace plumbline::server {

// `what` touches nothing that turn_lock_ guards.
template <typename What>
void Judge::WithTakeover(const What& what) {
  turn_lock_.OpenToTakeover(&worker_->work);
  what();
  turn_lock_.CloseToTakeover(&worker_->work);
}

}  // namespace plumbline::server

// How a judging thread lets others go on while it is at what is of its runs alone.
#pragma once

#include "server/judge/judge.h"

namespace plumbline::server {

// `what` touches nothing that is of who has the baton.
template <typename What>
void Judge::Beside(const What& what) {
  baton_.Loosen(&worker_->work);
  what();
  baton_.Tighten(&worker_->work);
}

}  // namespace plumbline::server

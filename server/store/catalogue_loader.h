// Fills a catalogue from the database.
#pragma once

#include "absl/status/status.h"
#include "server/store/catalogue.h"
#include "server/store/database.h"

namespace plumbline::server {

absl::Status LoadCatalogue(const Database* database, Catalogue* catalogue);

}  // namespace plumbline::server

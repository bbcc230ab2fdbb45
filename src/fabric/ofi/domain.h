// What all devices of the process share (discovery, fabric), and one device's domain of keys.
#pragma once

#include <rdma/fi_domain.h>

#include "fabric/ofi/fid.h"

#include <memory>

namespace perdure::fabric::ofi {

/// One set of keys. Connections opened in a domain reach only the memory registered in it.
struct Domain {
  fid_fabric* fabric = nullptr;   // of the process, never closed
  const fi_info* info = nullptr;  // of the process: what the provider offers
  Fid<fid_domain> domain;
};

/// Opens a domain on the tcp provider. The first call of the process discovers the provider, the
/// later ones do not. Errors: Unsupported when there is none.
Result<std::shared_ptr<Domain>> open_domain();

}  // namespace perdure::fabric::ofi

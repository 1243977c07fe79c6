"""What each PTX instruction does, one module a family. Importing a module enters its decoders in the registry."""

from slotline._program import main

raise SystemExit(main())
